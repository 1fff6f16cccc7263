"""Offers made by hand: round prices, terms that are all known."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

from fullstep.hardware import find_card
from fullstep.offers.currency import default_rates
from fullstep.offers.market import Market
from fullstep.offers.offer import Offer, Price
from fullstep.offers.provider import Provider, parse_tiers
from fullstep.plan.renting import Renter, Wishes

TODAY = date(2026, 11, 30)
FAIR = Provider(
    name="fair", billing_step_seconds=1.0, minimum_seconds=0.0, stopped="compute_free", disk_usd_gb_month=Decimal(0),
    egress=parse_tiers(":0"), texts={},
)  # fmt: skip
"""bills by the second, and nothing but machines"""


def offer(card: str | tuple[str, ...], gpus: int, per_hour: str | None, spot: str | None = None, **more: Any) -> Offer:
    """A machine; ``more``: other fields of an offer."""
    names = (card,) if isinstance(card, str) else card
    known: dict[str, Any] = {"provider": "fair", "region": "any", "captured_on": TODAY, "source": "by hand", **more}
    return Offer(
        instance=known.pop("instance", f"{gpus}x{names[0]}"),
        gpu=names[0],
        cards=tuple(map(find_card, names)),
        gpus=gpus,
        on_demand=None if per_hour is None else Price(Decimal(per_hour), "USD", known.pop("kind", "list")),
        interruptible=None if spot is None else Price(Decimal(spot), "USD", "list"),
        **known,
    )


def renter(*offers: Offer, wishes: Wishes | None = None, terms: Provider = FAIR) -> Renter:
    """Prices on these alone."""
    return Renter(Market(offers, {"fair": terms}, default_rates()), wishes)
