"""An offer: a machine that somebody rents, or that one has, with what is known of it. None: not known, never zero."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Literal, NamedTuple

from fullstep.hardware import Card
from fullstep.quantities import Currency

PriceKind = Literal["list", "marketplace_minimum", "live", "estimate", "negotiated", "owned", "bought"]
"""list: published by the seller; marketplace_minimum: the cheapest host of a marketplace, which may be gone; live: what was on sale at
that moment; estimate: derived; negotiated, owned and bought: of one's own file"""
PRICE_KIND_WORDS: dict[PriceKind, str] = {
    "list": "list price",
    "marketplace_minimum": "cheapest host seen",
    "live": "on sale when seen",
    "estimate": "estimated",
    "negotiated": "your price",
    "owned": "your machine: power and hosting",
    "bought": "bought: purchase, power and hosting by the hour",
}


MOST_GPUS = 1024
"""of one machine"""
MOST_OF_A_MACHINE = 100_000.0
"""processors, GiB of host memory, GB of disk, Gbit/s of one machine: what is more is no machine"""
MOST_PER_HOUR = Decimal(10) ** 7
"""in any currency"""


class Price(NamedTuple):
    """Of one machine for one hour."""

    per_hour: Decimal
    currency: Currency
    kind: PriceKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One kind of machine at one seller in one place."""

    provider: str
    region: str
    """"any" where the seller's price is the same, or not said by region"""
    instance: str
    gpu: str
    """as the seller calls it"""
    cards: tuple[Card, ...]
    """that it may be: several where the form is not said"""
    gpus: int
    on_demand: Price | None
    interruptible: Price | None
    captured_on: date
    source: str
    """a code of ``data/offers_sources.csv``, or where a live or own price comes from"""
    vcpus: float | None = None
    host_memory_gib: float | None = None
    disk_gb: float | None = None
    network_gbit_s: float | None = None
    """line rate between machines"""
    rdma: bool | None = None
    tier: str = ""
    """a seller's own class of machine, like community"""
    seen_at: str = ""
    """page on which the price stood"""
    machines: int | None = None
    """how many there are; None: not said"""
    purchase: Decimal | None = None
    """of a machine that one would buy, in the currency of its price"""
    running_per_hour: Decimal | None = None
    """power and hosting of a machine that one has or would buy"""

    @property
    def name(self) -> str:
        """Seller, place and machine in words: ``aws us-east-1 p5.48xlarge``."""
        place = "" if self.region in ("", "any") else f" {self.region}"
        return f"{self.provider}{place} {self.instance}"

    @property
    def is_own(self) -> bool:
        """A machine that one has or would buy."""
        return self.running_per_hour is not None

    def price(self, interruptible: bool) -> Price | None:
        """Of one machine, on demand or interruptible."""
        return self.interruptible if interruptible else self.on_demand
