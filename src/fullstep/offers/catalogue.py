"""The offers that come with fullstep: one row of ``data/offers.csv`` each."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal
from functools import cache
from typing import NamedTuple, cast

from fullstep.hardware import Card
from fullstep.offers.cards import offered_cards
from fullstep.offers.offer import Offer, Price, PriceKind
from fullstep.offers.provider import DATA


class Source(NamedTuple):
    """Where rows of the table come from."""

    what: str
    where: str
    licence: str
    notes: str


@cache
def bundled_offers() -> Sequence[Offer]:
    """All rows of the table, in its order.

    >>> {offer.cards[0].key for offer in bundled_offers() if offer.instance == "p5.48xlarge"}
    {'H100-SXM'}
    """
    return tuple(map(_offer, _rows()))


def bundled_offers_of(card: str, gpus: int) -> Sequence[Offer]:
    """Those of machines that may have so many of that card.

    >>> {offer.provider for offer in bundled_offers_of("B300", 8)}
    {'aws'}
    """
    rows = (row for row in _rows() if row["gpus"] == str(gpus))
    return [_offer(row) for row in rows if any(each.key == card for each in _cards(row))]


@cache
def _rows() -> Sequence[Mapping[str, str]]:
    with (DATA / "offers.csv").open(encoding="utf-8", newline="") as file:
        lines = csv.reader(file)
        columns = next(lines)
        return [dict(zip(columns, line, strict=True)) for line in lines]


def _cards(row: Mapping[str, str]) -> tuple[Card, ...]:
    return offered_cards(row["gpu"], row["form"], float(row["gpu_memory_gb"]))


@cache
def sources() -> Mapping[str, Source]:
    """Sources of the table by their codes."""
    with (DATA / "offers_sources.csv").open(encoding="utf-8", newline="") as file:
        return {row["code"]: Source(row["what"], row["where"], row["licence"], row["notes"]) for row in csv.DictReader(file)}


def _offer(row: Mapping[str, str]) -> Offer:
    return Offer(
        provider=row["provider"],
        region=row["region"],
        instance=row["instance"],
        gpu=row["gpu"],
        cards=_cards(row),
        gpus=int(row["gpus"]),
        on_demand=_price(row["on_demand_usd_h"], row["on_demand_kind"]),
        interruptible=_price(row["interruptible_usd_h"], row["interruptible_kind"]),
        captured_on=_day(row["captured_on"]),
        source=row["source"],
        vcpus=_number(row["vcpus"]),
        host_memory_gib=_number(row["host_memory_gib"]),
        disk_gb=_number(row["disk_gb"]),
        network_gbit_s=_number(row["network_gbit_s"]),
        rdma=None if not row["rdma"] else row["rdma"] != "no",
        tier=row["tier"],
        seen_at=row["seen_at"],
    )


def _price(text: str, kind: str) -> Price | None:
    return Price(Decimal(text), "USD", cast(PriceKind, kind)) if text else None


@cache
def _day(text: str) -> date:
    return date.fromisoformat(text)


def _number(text: str) -> float | None:
    return float(text) if text else None
