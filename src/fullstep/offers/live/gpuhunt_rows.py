"""gpuhunt (the extra live): items of its catalogue become offers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from typing import Any, NamedTuple

from fullstep.offers.live.answers import FetchError, Parsed, cheapest, gpu_count, narrowest, number, parse_json, price, rows_of, words
from fullstep.offers.live.known_machines import completed
from fullstep.offers.offer import Offer

_VENDORS = ("nvidia", "amd", "intel")
_OTHER_FLAGS = frozenset(("runpod-cluster",))
"""offers that are rented in numbers only, not machine by machine"""


class _Place(NamedTuple):
    region: str
    instance: str
    gpus: int


def parse_gpuhunt(data: bytes, provider: str, today: date) -> Parsed:
    """Offers of what the worker wrote: on-demand and spot items of one machine become one offer.

    Args:
        data: JSON with ``items`` in gpuhunt's own fields, or with ``error``
        provider: by our name
        today: when it was asked for

    Raises:
        FetchError: the worker says why it has nothing, or wrote no list
    """
    document = parse_json(data)
    reason = document.get("error") if isinstance(document, dict) else None
    if reason is not None:
        raise FetchError(str(reason))
    version = words(document.get("version"), 20) if isinstance(document, dict) else ""
    dropped: Counter[str] = Counter()
    merged: dict[_Place, Offer] = {}
    for row in rows_of(document, "items"):
        offer = _offer(row, provider, f"gpuhunt {version}".strip(), today, dropped)
        if offer is not None:
            place = _Place(offer.region, offer.instance, offer.gpus)
            merged[place] = _merged(merged[place], offer) if place in merged else offer
    return cheapest(map(_plausible, merged.values()), dropped)


def _offer(row: Mapping[str, Any], provider: str, source: str, today: date, dropped: Counter[str]) -> Offer | None:
    if row.get("gpu_vendor") not in _VENDORS:
        dropped["of another maker"] += 1
        return None
    name, instance, gpus = words(row.get("gpu_name")), words(row.get("instance_name")), gpu_count(row.get("gpu_count"))
    cost, spot, flags = price(row.get("price"), "live"), row.get("spot"), row.get("flags")
    if not name or not instance or gpus is None or cost is None or not isinstance(spot, bool):
        dropped["cannot be read"] += 1
        return None
    if isinstance(flags, list) and any(isinstance(flag, str) and flag in _OTHER_FLAGS for flag in flags):
        dropped["clusters only"] += 1
        return None
    cards = narrowest([instance, name], number(row.get("gpu_memory")))
    if not cards:
        dropped["card not in the catalogue"] += 1
        return None
    offer = Offer(
        provider=provider,
        region=words(row.get("location")) or "any",
        instance=instance,
        gpu=name,
        cards=cards,
        gpus=gpus,
        on_demand=None if spot else cost,
        interruptible=cost if spot else None,
        captured_on=today,
        source=source,
        vcpus=number(row.get("cpu")),
        host_memory_gib=number(row.get("memory")),
        disk_gb=number(row.get("disk_size")),
    )
    return completed(offer)


def _merged(first: Offer, second: Offer) -> Offer:
    """One offer of two rows of one machine; of two prices of a kind the lower, which is another zone or host."""
    both = {}
    for kind in ("on_demand", "interruptible"):
        found = [cost for cost in (getattr(first, kind), getattr(second, kind)) if cost is not None]
        both[kind] = min(found, key=lambda cost: cost.per_hour, default=None)
    return replace(first, on_demand=both["on_demand"], interruptible=both["interruptible"])


def _plausible(offer: Offer) -> Offer:
    """Without an interruptible price above that on demand: such rows are a catalogue's mistake or a market gone mad."""
    if offer.on_demand is None or offer.interruptible is None or offer.interruptible.per_hour <= offer.on_demand.per_hour:
        return offer
    return replace(offer, interruptible=None)
