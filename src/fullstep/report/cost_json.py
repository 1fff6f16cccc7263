"""Bills, rentals and what the market says, as JSON: money in decimal strings with its currency, null where it is not known."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from math import inf
from typing import Any

from fullstep.ledger import BillLine, Cost
from fullstep.offers.market import is_old
from fullstep.offers.offer import Offer, Price
from fullstep.plan.choices import RentOrBuy
from fullstep.plan.rental import Rental
from fullstep.quantities import Bounds, Currency


def cost_as_dict(cost: Cost) -> dict[str, Any]:
    """The object ``run.cost``; ``high`` is null where it may never end."""
    return {
        "currency": cost.bill.currency,
        "low": decimal_text(cost.low),
        "likely": decimal_text(cost.likely),
        "high": decimal_text(cost.high),
        "hours": hours_as_dict(cost.hours),
        "expected_interruptions": cost.interruptions,
        "interruptions_deviation": decimal_text(cost.deviation),
        "unknown_lines": len(cost.bill.unknown),
        "offer": cost.at,
        "price_seen_on": None if cost.seen_on is None else cost.seen_on.isoformat(),
    }


def hours_as_dict(hours: Bounds) -> dict[str, float | None]:
    """Bounds of which the high end may be none: it may never end."""
    return {name: None if end == inf else end for name, end in hours.as_dict().items()}


def bill_line_as_dict(line: BillLine, currency: Currency) -> dict[str, Any]:
    """One line of ``run.bill``."""
    return {
        "what": line.what,
        "quantity": decimal_text(line.quantity),
        "unit": line.unit,
        "unit_price": decimal_text(line.unit_price),
        "amount": decimal_text(line.amount),
        "currency": currency,
        "note": line.note,
    }


def rental_as_dict(rental: Rental, currency: Currency, today: date) -> dict[str, Any]:
    """The object ``offer`` of an option."""
    price = rental.offer.price(rental.interruptible)
    return {
        **offer_as_dict(rental.offer),
        "machines": rental.machines,
        "interruptible": rental.interruptible,
        "price": None if price is None else price_as_dict(price),
        "per_hour": {"amount": decimal_text(rental.per_hour), "currency": currency},
        "per_million_tokens": decimal_text(rental.per_million_tokens),
        "old": is_old(rental.offer, today),
        "days_old": (today - rental.offer.captured_on).days,
        "dearer_places": rental.elsewhere,
        "run_hours": None if rental.run_hours is None else hours_as_dict(rental.run_hours),
        "chance_in_time": rental.in_time,
        "chance_in_budget": rental.in_budget,
        "cost": None if rental.cost is None else cost_as_dict(rental.cost),
    }


def offer_as_dict(offer: Offer) -> dict[str, Any]:
    """What tells an offer."""
    return {
        "provider": offer.provider,
        "region": offer.region,
        "instance": offer.instance,
        "gpu": offer.gpu,
        "cards": [card.key for card in offer.cards],
        "gpus": offer.gpus,
        "captured_on": offer.captured_on.isoformat(),
        "source": offer.source,
    }


def price_as_dict(price: Price) -> dict[str, Any]:
    """A price of one machine for one hour."""
    return {"per_hour": decimal_text(price.per_hour), "currency": price.currency, "kind": price.kind}


def rent_or_buy_as_dict(row: RentOrBuy, currency: Currency) -> dict[str, Any]:
    """One machine that one would buy."""
    return {
        "bought": offer_as_dict(row.bought),
        "rented": row.rented,
        "rent_per_hour": {"amount": decimal_text(row.rent_per_hour), "currency": currency},
        "pays_from_hours": decimal_text(row.pays_from_hours),
    }


def decimal_text(amount: Decimal | None) -> str | None:
    """A decimal string without needless zeros, to six places; None stays null.

    >>> decimal_text(Decimal("12.500000")), decimal_text(Decimal("1E+2")), decimal_text(None)
    ('12.5', '100', None)
    """
    if amount is None:
        return None
    text = f"{amount:.6f}"
    return text.rstrip("0").rstrip(".")
