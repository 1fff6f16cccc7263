"""RunPod: what is in stock, by card and number of cards. Untried live: written from public documentation and clients alone.

Form: https://graphql-spec.runpod.io (query gpuTypes)
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import date
from typing import Any

from fullstep.offers.live.answers import FetchError, Parsed, cheapest, narrowest, number, parse_json, price, rows_of, words
from fullstep.offers.live.known_machines import completed
from fullstep.offers.live.transport import Deadline, ask
from fullstep.offers.offer import Offer

ADDRESS = "https://api.runpod.io/graphql"
SOURCE = "api.runpod.io"
_COUNTS = (1, 2, 4, 8)
_TIERS = {"secure": ("securePrice", "true"), "community": ("communityPrice", "false")}
"""field of the price of one GPU [USD/h], and how the stock of that tier is asked for"""
_STOCK = " ".join(
    f"{tier}{count}: lowestPrice(input: {{gpuCount: {count}, secureCloud: {asked}}}) {{ stockStatus minVcpu minMemory }}"
    for tier, (_, asked) in _TIERS.items()
    for count in _COUNTS
)
QUERY = f"query GpuTypes {{ gpuTypes {{ id displayName memoryInGb securePrice communityPrice {_STOCK} }} }}"


def fetch_runpod(deadline: Deadline, today: date, address: str = ADDRESS) -> Parsed:
    """Asks for all types of GPU.

    Raises:
        FetchError: nothing came, or nothing that can be read
    """
    return parse_runpod(ask(address, deadline, json.dumps({"query": QUERY}).encode()), today)


def parse_runpod(data: bytes, today: date) -> Parsed:
    """Offers of an answer: each card in each tier, by as many as are in stock together.

    Raises:
        FetchError: the answer is no list of types
    """
    document = parse_json(data)
    errors = document.get("errors") if isinstance(document, dict) else None
    if errors and not document.get("data"):
        first = errors[0] if isinstance(errors, list) else errors
        raise FetchError(f"refused: {words(first.get('message'), 300) if isinstance(first, dict) else 'no reason given'}")
    dropped: Counter[str] = Counter()
    return cheapest([offer for row in rows_of(document, "data", "gpuTypes") for offer in _offers(row, today, dropped)], dropped)


def _offers(row: Mapping[str, Any], today: date, dropped: Counter[str]) -> Iterator[Offer]:
    identity, name, memory_gb = words(row.get("id")), words(row.get("displayName")), number(row.get("memoryInGb"))
    if not (name or identity) or memory_gb is None:
        dropped["cannot be read"] += 1
        return
    cards = narrowest([identity, name], memory_gb)
    if not cards:
        dropped["card not in the catalogue"] += 1
        return
    for tier, (field, _) in _TIERS.items():
        for count in _COUNTS:
            stock = row.get(f"{tier}{count}")
            each = number(row.get(field))
            cost = None if each is None else price(each * count, "live")
            if not isinstance(stock, dict) or not words(stock.get("stockStatus")) or cost is None:
                continue
            yield completed(
                Offer(
                    provider="runpod",
                    region="any",
                    instance=f"{name or identity} x{count} ({tier})",
                    gpu=name or identity,
                    cards=cards,
                    gpus=count,
                    on_demand=cost,
                    interruptible=None,
                    captured_on=today,
                    source=SOURCE,
                    vcpus=number(stock.get("minVcpu")),
                    host_memory_gib=number(stock.get("minMemory")),
                    tier=tier,
                )
            )
