"""Offers and providers side by side: what each costs, and how its provider bills, stops and takes away."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import NamedTuple

from fullstep.errors import Fault, InputError
from fullstep.hardware import Card
from fullstep.job.refusal import describe, did_you_mean
from fullstep.offers.listing import ListedOffer, cards_meant, known_sellers, listed, smallest_gib
from fullstep.offers.market import Market
from fullstep.offers.offer import Offer
from fullstep.offers.provider import Provider
from fullstep.quantities import Currency

MOST_COMPARED = 8


class Compared(NamedTuple):
    """One column."""

    asked: str
    """as it was asked for"""
    provider: Provider
    offer: Offer | None
    """None: a whole provider"""
    alike: int
    """how many offers the words fit; of several that are meant as one the cheapest is shown"""
    on_demand: ListedOffer | None
    """of the offer; None: not known"""
    interruptible: ListedOffer | None
    by_card: tuple[ListedOffer, ...]
    """of a whole provider: the cheapest per GPU for each card, on demand where that is known; those with most memory first"""


class Comparison(NamedTuple):
    """Columns side by side, prices in one currency."""

    columns: tuple[Compared, ...]
    currency: Currency
    market: Market
    today: date


def compare_offers(market: Market, names: Sequence[str], currency: Currency, today: date, gpu: str = "") -> Comparison:
    """Providers or offers by name.

    Args:
        market: where they are looked for
        names: a provider, or words of an offer's name: "aws", "p5.48xlarge", "aws us-east-1 p5.48xlarge"
        currency: of all prices
        today: prices that are too old by then are marked
        gpu: only offers with this card count; "": any

    Raises:
        InputError: too few or too many names, or one that fits nothing; all of them together
    """
    cards = cards_meant(gpu) if gpu else ()
    if not 2 <= len(names) <= MOST_COMPARED:
        raise InputError(Fault("--compare", f"{len(names)} names", f"2 to {MOST_COMPARED} providers or offers"))
    faults: list[Fault] = []
    columns: list[Compared] = []
    for name in names:
        try:
            columns.append(_column(market, name, currency, today, cards))
        except InputError as error:
            faults += error.faults
    if faults:
        raise InputError(*faults)
    return Comparison(tuple(columns), currency, market, today)


def _column(market: Market, name: str, currency: Currency, today: date, cards: Sequence[Card]) -> Compared:
    def row(offer: Offer, *, interruptible: bool) -> ListedOffer | None:
        return listed(offer, market, currency, today, interruptible=interruptible)

    is_whole = name in known_sellers(market)
    fitting = [offer for offer in market.offers if (offer.provider == name if is_whole else _fits(offer, name))]
    if not fitting and not is_whole:
        raise InputError(_unknown(market, name))
    wanted = [offer for offer in fitting if not cards or any(card in cards for card in offer.cards)]
    if is_whole:
        rows = [found for offer in wanted if (found := row(offer, interruptible=False) or row(offer, interruptible=True))]
        return Compared(name, market.provider(name), None, len(wanted), None, None, _cheapest_by_card(rows))
    if not wanted:
        raise InputError(Fault("--compare", f"{describe(name)} has another card than --gpu", "offers with that card"))
    best = min(wanted, key=lambda offer: _cost(row(offer, interruptible=False) or row(offer, interruptible=True)))
    prices = row(best, interruptible=False), row(best, interruptible=True)
    return Compared(name, market.provider(best.provider), best, len(wanted), *prices, ())


def _cheapest_by_card(rows: Sequence[ListedOffer]) -> tuple[ListedOffer, ...]:
    best: dict[tuple[Card, ...], ListedOffer] = {}
    for row in sorted(rows, key=_cost):
        best.setdefault(row.offer.cards, row)
    return tuple(sorted(best.values(), key=lambda row: (-smallest_gib(row.offer), row.per_gpu)))


def _cost(row: ListedOffer | None) -> tuple[bool, float, str]:
    """Per GPU; what has no price comes last."""
    return (True, 0.0, "") if row is None else (False, float(row.per_gpu), row.offer.name)


def _fits(offer: Offer, name: str) -> bool:
    """Its whole name; or each word is its provider, its region, or of its machine's name."""
    if offer.name.lower() == name.lower() or offer.instance.lower() == name.lower():
        return True
    words = name.lower().split()
    known = {offer.provider.lower(), offer.region.lower(), offer.instance.lower(), *offer.instance.lower().split()}
    return bool(words) and all(word in known for word in words)


def _unknown(market: Market, name: str) -> Fault:
    near = [*known_sellers(market), *dict.fromkeys(offer.instance for offer in market.offers)]
    hint = did_you_mean(name.rsplit(maxsplit=1)[-1] if name.split() else name, near)
    return Fault("--compare", f"no provider or offer {describe(name)}", "a provider, or words of an offer as the list shows it", hint)
