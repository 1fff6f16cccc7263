"""Vast: the cheapest host on sale for each card, number of cards and country. Untried live: written from the documentation alone.

Form: https://docs.vast.ai/api-reference/search/search-offers
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from datetime import date
from typing import Any

from fullstep.offers.live.answers import FetchError, Parsed, cheapest, gpu_count, narrowest, number, parse_json, price, rows_of, words
from fullstep.offers.live.transport import Deadline, ask
from fullstep.offers.offer import Offer

ADDRESS = "https://console.vast.ai/api/v0/bundles/"
SOURCE = "console.vast.ai"
_MOST_HOSTS = 3000
_MIB_OF_A_GIB = 1024
_QUERY = {
    "limit": _MOST_HOSTS,
    "type": "on-demand",
    "verified": {"eq": True},
    "rentable": {"eq": True},
    "rented": {"eq": False},
    "order": [["dph_total", "asc"]],
}
_NAMES = {
    "RTX PRO 6000 S": "RTXPRO6000-SE", "Q RTX 6000": "QuadroRTX6000", "Q RTX 8000": "QuadroRTX8000", "B300 PC": "B300",
    "RTX 4070S": "RTX 4070 SUPER", "RTX 4070S Ti": "RTX 4070 Ti SUPER", "RTX 4080S": "RTX 4080 SUPER",
}  # fmt: skip
"""cards that Vast calls by names of its own"""


def fetch_vast(deadline: Deadline, today: date, address: str = ADDRESS) -> Parsed:
    """Asks for verified machines that are free now.

    Raises:
        FetchError: nothing came, or nothing that can be read
    """
    return parse_vast(ask(address, deadline, json.dumps(_QUERY).encode()), today)


def parse_vast(data: bytes, today: date) -> Parsed:
    """Offers of an answer: of hosts that differ in nothing but price and host the cheapest; its lowest bid is the interruptible price.

    Raises:
        FetchError: the answer is no list of offers
    """
    document = parse_json(data)
    if isinstance(document, dict) and document.get("success") is False:
        raise FetchError(f"refused: {words(document.get('msg'), 200) or 'no reason given'}")
    dropped: Counter[str] = Counter()
    best: dict[tuple[str, int, str], Offer] = {}
    for row in rows_of(document, "offers"):
        offer = _offer(row, today, dropped)
        if offer is None:
            continue
        key = (offer.gpu, offer.gpus, offer.region)
        if key not in best or _dollars(offer) < _dollars(best[key]):
            best[key] = offer
    return cheapest(best.values(), dropped)


def _offer(row: Mapping[str, Any], today: date, dropped: Counter[str]) -> Offer | None:
    name, gpus, memory_mib = words(row.get("gpu_name")), gpu_count(row.get("num_gpus")), number(row.get("gpu_ram"))
    on_demand, bid = price(row.get("dph_total"), "live"), price(row.get("min_bid"), "live")
    if not name or gpus is None or memory_mib is None or on_demand is None:
        dropped["cannot be read"] += 1
        return None
    cards = narrowest([_NAMES.get(name, name)], memory_mib / _MIB_OF_A_GIB)
    if not cards:
        dropped["card not in the catalogue"] += 1
        return None
    cores, share = number(row.get("cpu_cores")), number(row.get("cpu_cores_effective"))
    host_mib = number(row.get("cpu_ram"), 1e9)
    return Offer(
        provider="vast",
        region=_country(row.get("geolocation")),
        instance=f"{name} x{gpus}",
        gpu=name,
        cards=cards,
        gpus=gpus,
        on_demand=on_demand,
        interruptible=bid if bid is not None and bid.per_hour <= on_demand.per_hour else None,
        captured_on=today,
        source=SOURCE,
        vcpus=share,
        host_memory_gib=round(host_mib * share / cores / _MIB_OF_A_GIB, 1) if host_mib and cores and share else None,
        disk_gb=number(row.get("disk_space")),
        tier="marketplace",
    )


def _country(place: Any) -> str:
    """``Sweden, SE`` is se."""
    return words(place).rpartition(",")[2].strip().lower() or "any"


def _dollars(offer: Offer) -> float:
    return float(offer.on_demand.per_hour) if offer.on_demand else 0.0
