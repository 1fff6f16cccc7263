"""Bills, rentals and what the market says, as JSON: money in decimal strings with its currency, null where it is not known."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

from fullstep.ledger import BillLine, Cost
from fullstep.offers.market import OLD_AFTER_DAYS
from fullstep.offers.offer import Offer, Price
from fullstep.plan.choices import RentOrBuy
from fullstep.plan.rental import Rental
from fullstep.quantities import Currency


def cost_as_dict(cost: Cost) -> dict[str, Any]:
    """The object ``run.cost``; ``high`` is null where it may never end."""
    return {
        "currency": cost.bill.currency,
        "low": str(cost.low),
        "likely": str(cost.likely),
        "high": decimal_text(cost.high),
        "hours": cost.hours.as_dict(),
        "expected_interruptions": cost.interruptions,
        "interruptions_deviation": str(cost.deviation),
        "unknown_lines": len(cost.bill.unknown),
    }


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
    days = (today - rental.offer.captured_on).days
    return {
        **offer_as_dict(rental.offer),
        "machines": rental.machines,
        "interruptible": rental.interruptible,
        "price": None if price is None else price_as_dict(price),
        "per_hour": {"amount": decimal_text(rental.per_hour), "currency": currency},
        "per_million_tokens": decimal_text(rental.per_million_tokens),
        "old": days > OLD_AFTER_DAYS and not rental.offer.is_own,
        "days_old": days,
        "dearer_places": rental.elsewhere,
        "run_hours": None if rental.run_hours is None else rental.run_hours.as_dict(),
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
