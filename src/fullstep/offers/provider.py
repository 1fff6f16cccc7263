"""How providers bill and take machines away: ``data/providers.csv``. None: no document at hand says it."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple, cast

DATA = Path(__file__).parent / "data"
Stopped = Literal["compute_free", "billed", "no_stop"]
"""a machine that is stopped: its GPUs cost nothing and its disks do; all of it is billed on; there is no such state"""


class Tier(NamedTuple):
    """A price that holds up to an amount in all."""

    up_to_gb: Decimal | None
    """None: whatever comes above"""
    usd_per_gb: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """What is known of one provider beside its prices. Texts are notes for people, the rest is what a bill reads."""

    name: str
    country: str = ""
    billing_step_seconds: float | None = None
    minimum_seconds: float | None = None
    stopped: Stopped | None = None
    notice_seconds: float | None = None
    """between the signal and the end of an interruptible machine"""
    longest_hours: float | None = None
    """after which an interruptible machine is stopped in any case"""
    disk_usd_gb_month: Decimal | None = None
    stopped_disk_usd_gb_month: Decimal | None = None
    """where it differs from that of a running machine"""
    egress: tuple[Tier, ...] | None = None
    interrupted_every_hours: float | None = None
    """mean time between interruptions of one machine, of one's own log"""
    wait_hours: float | None = None
    """mean wait for another machine, of one's own log"""
    texts: Mapping[str, str]
    """notes by column"""

    @property
    def access(self) -> str:
        """How one gets in: SSH, Docker, Jupyter, ..."""
        return self.texts.get("access", "")


TEXTS = (
    "billing_step", "minimum_charge", "stopped_machine", "interruptible", "discount_percent", "on_interruption", "storage_after_stop",
    "storage_price", "egress", "access", "fabric", "sources", "source_dates", "notes",
)  # fmt: skip
"""columns that are notes for people"""


@cache
def providers() -> Mapping[str, Provider]:
    """All providers of the table by name.

    >>> providers()["lambda"].stopped, providers()["selectel"].longest_hours, providers()["timeweb"].billing_step_seconds
    ('no_stop', 24.0, None)
    """
    with (DATA / "providers.csv").open(encoding="utf-8", newline="") as file:
        return {row["provider"]: _provider(row) for row in csv.DictReader(file)}


def provider_of(name: str) -> Provider:
    """The provider, or one of which nothing is known."""
    return providers().get(name) or Provider(name=name, texts={})


def egress_cost_usd(tiers: tuple[Tier, ...], gigabytes: Decimal) -> Decimal:
    """What it costs to take so much out in one month [USD]: each tier's part at its price.

    Example: 5 GB where the first is free and others cost 0.09: ``4 * 0.09`` = 0.36.

    >>> egress_cost_usd(parse_tiers("1:0|10241:0.09|:0.05"), Decimal(5))
    Decimal('0.36')
    """
    cost, done = Decimal(0), Decimal(0)
    for tier in tiers:
        upto = gigabytes if tier.up_to_gb is None else min(gigabytes, tier.up_to_gb)
        cost += max(Decimal(0), upto - done) * tier.usd_per_gb
        done = max(done, upto)
    return cost


def parse_tiers(text: str) -> tuple[Tier, ...]:
    """``up to [GB]:price [USD/GB]``, separated by ``|``; the last without an end.

    >>> parse_tiers(":0")
    (Tier(up_to_gb=None, usd_per_gb=Decimal('0')),)
    """
    pairs = (part.partition(":") for part in text.split("|"))
    return tuple(Tier(Decimal(up_to) if up_to else None, Decimal(price)) for up_to, _, price in pairs)


def _provider(row: Mapping[str, str]) -> Provider:
    return Provider(
        name=row["provider"],
        country=row["country"],
        billing_step_seconds=_number(row["billing_step_seconds"]),
        minimum_seconds=_number(row["minimum_seconds"]),
        stopped=cast(Stopped, row["stopped"]) if row["stopped"] else None,
        notice_seconds=_number(row["notice_seconds"]),
        longest_hours=_number(row["longest_hours"]),
        disk_usd_gb_month=Decimal(row["disk_usd_gb_month"]) if row["disk_usd_gb_month"] else None,
        stopped_disk_usd_gb_month=Decimal(row["stopped_disk_usd_gb_month"]) if row["stopped_disk_usd_gb_month"] else None,
        egress=parse_tiers(row["egress_usd_gb"]) if row["egress_usd_gb"] else None,
        texts={name: row[name] for name in TEXTS},
    )


def _number(text: str) -> float | None:
    return float(text) if text else None
