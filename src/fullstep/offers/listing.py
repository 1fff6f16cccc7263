"""Which offers are asked for, in which order, and why nothing is left where nothing is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Literal, NamedTuple, get_args

from fullstep.errors import Fault, InputError
from fullstep.hardware import Card, cards_named, find_card
from fullstep.job.refusal import describe, did_you_mean
from fullstep.offers.catalogue import sources
from fullstep.offers.currency import converted
from fullstep.offers.market import Market, is_old
from fullstep.offers.offer import Offer, Price
from fullstep.offers.provider import Provider, providers
from fullstep.quantities import CURRENCIES, GIB, Currency

SortBy = Literal["price", "gpu-price", "memory"]
SORTS: tuple[SortBy, ...] = get_args(SortBy)
DEFAULT_LIMIT = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferFilters:
    """What is asked for. None, "" and (): anything."""

    gpu: str = ""
    """a card by any of its names; one that is sold in several forms means all of them"""
    providers: tuple[str, ...] = ()
    region: str = ""
    """a part of its name, like us-east"""
    gpus: int | None = None
    """of one machine, exactly"""
    min_gpus: int | None = None
    min_memory_gib: float | None = None
    """of one card, as its driver reports it"""
    interruptible: bool = False
    """by the price of the machine that may be taken away"""
    max_price: Decimal | None = None
    """of one machine and hour, in ``currency``"""
    known_network: bool = False
    """the rate between machines is known"""
    currency: Currency = "USD"
    sort: SortBy = "price"
    limit: int = DEFAULT_LIMIT


class ListedOffer(NamedTuple):
    """One line of the list."""

    offer: Offer
    price: Price
    """of one machine and hour, in the currency asked for"""
    per_gpu: Decimal
    is_old: bool
    """seen too long ago to be relied on"""


class Listing(NamedTuple):
    """What is on sale of what is asked for."""

    filters: OfferFilters
    rows: tuple[ListedOffer, ...]
    found: int
    """how many there are; ``rows`` may be fewer"""
    emptied_by: str
    """the filter that left nothing, in words; "": something is left"""
    other_price_only: int
    """that have only an interruptible price where it is asked for on demand, or the other way round"""
    region_not_said: int
    """left out because they name no region"""
    without_price: tuple[Provider, ...]
    """that rent GPUs and of which no price is known; of those that are asked for"""
    asked_providers: tuple[Provider, ...]
    market: Market
    today: date

    @property
    def sources(self) -> tuple[str, ...]:
        """Codes of the table's sources from which the shown rows are."""
        return tuple(sorted({row.offer.source for row in self.rows} & sources().keys()))


class _Stage(NamedTuple):
    words: str
    keeps: Callable[[Offer], bool]


def list_offers(market: Market, filters: OfferFilters, today: date) -> Listing:
    """The offers that pass all filters, sorted.

    Raises:
        InputError: a filter names what does not exist; all of them together
    """
    offers: list[Offer] = list(market.offers)
    emptied_by, region_not_said = "", 0
    for stage in _stages(filters, _check(market, filters)):
        kept = [offer for offer in offers if stage.keeps(offer)]
        if offers and not kept:
            emptied_by = f"{stage.words} leaves none of {len(offers)}"
        region_not_said += sum(map(_has_no_region, offers)) if stage.words.startswith("--region") else 0
        offers = kept
    priced = [offer for offer in offers if offer.price(filters.interruptible)]
    if offers and not priced:
        emptied_by = f"{'' if filters.interruptible else 'the lack of '}--interruptible leaves none of {len(offers)}"
    rows = sorted((_listed(offer, market, filters, today) for offer in priced), key=_ORDERS[filters.sort])
    within = [row for row in rows if filters.max_price is None or row.price.per_hour <= filters.max_price]
    if rows and not within:
        cheapest = f"{min(row.price.per_hour for row in rows):.2f} {filters.currency}"
        emptied_by = f"--max-price {filters.max_price} leaves none of {len(rows)}; the cheapest costs {cheapest}"
    return Listing(
        filters=filters,
        rows=tuple(within[: filters.limit]),
        found=len(within),
        emptied_by=emptied_by,
        other_price_only=len(offers) - len(priced),
        region_not_said=region_not_said,
        without_price=tuple(found for found in market.without_price() if found.name in (filters.providers or (found.name,))),
        asked_providers=tuple(map(market.provider, filters.providers)),
        market=market,
        today=today,
    )


def cards_meant(gpu: str) -> tuple[Card, ...]:
    """All forms of the card that a name means.

    Raises:
        InputError: no card is known by it; the nearest names are listed
    """
    found = cards_named(gpu) if len(gpu) <= 80 else ()
    if found:
        return found
    try:
        return (find_card(gpu),)
    except InputError as error:
        raise InputError(*(Fault("--gpu", fault.found, fault.allowed) for fault in error.faults)) from None


def smallest_gib(offer: Offer) -> float:
    """Memory of the smallest card that the offer may be [GiB], as its driver reports it."""
    return min(card.total_bytes for card in offer.cards) / GIB


def listed(offer: Offer, market: Market, currency: Currency, today: date, *, interruptible: bool) -> ListedOffer | None:
    """The offer with its price in a currency; None: that price is not known."""
    price = offer.price(interruptible)
    if price is None:
        return None
    amount = converted(price.per_hour, price.currency, currency, market.rates)
    return ListedOffer(offer, Price(amount, currency, price.kind), amount / offer.gpus, is_old(offer, today))


def _listed(offer: Offer, market: Market, filters: OfferFilters, today: date) -> ListedOffer:
    found = listed(offer, market, filters.currency, today, interruptible=filters.interruptible)
    assert found is not None  # those without a price are left out before
    return found


def _stages(filters: OfferFilters, cards: Sequence[Card]) -> list[_Stage]:
    least = filters.min_memory_gib
    region = filters.region.lower()
    asked = {
        f"--provider {' '.join(filters.providers)}": (filters.providers, lambda offer: offer.provider in filters.providers),
        f"--gpu {filters.gpu}": (cards, lambda offer: any(card in cards for card in offer.cards)),
        f"--gpus {filters.gpus}": (filters.gpus, lambda offer: offer.gpus == filters.gpus),
        f"--min-gpus {filters.min_gpus}": (filters.min_gpus, lambda offer: offer.gpus >= (filters.min_gpus or 1)),
        f"--min-memory-gib {least}": (least, lambda offer: smallest_gib(offer) >= (least or 0)),
        f"--region {filters.region}": (region, lambda offer: region in offer.region.lower()),
        "--network": (filters.known_network, lambda offer: offer.network_gbit_s is not None),
    }
    return [_Stage(words, keeps) for words, (stated, keeps) in asked.items() if stated]


def _check(market: Market, filters: OfferFilters) -> tuple[Card, ...]:
    """The cards that are asked for, once every filter names something that exists."""
    faults: list[Fault] = []
    cards: tuple[Card, ...] = ()
    if filters.gpu:
        try:
            cards = cards_meant(filters.gpu)
        except InputError as error:
            faults += error.faults
    sellers = known_sellers(market)
    for name in filters.providers:
        if name not in sellers:
            faults.append(Fault("--provider", f"no provider {describe(name)}", ", ".join(sellers), did_you_mean(name, sellers)))
    regions = sorted({offer.region for offer in market.offers})
    if filters.region and not any(filters.region.lower() in region.lower() for region in regions):
        hint = did_you_mean(filters.region, regions) or "fullstep offers --provider NAME shows the regions of one."
        faults.append(Fault("--region", f"no region {describe(filters.region)}", "a part of a region's name, like us-east", hint))
    for flag, value, known in (("--sort", filters.sort, SORTS), ("--currency", filters.currency, CURRENCIES)):
        if value not in known:
            faults.append(Fault(flag, describe(value), ", ".join(known), did_you_mean(str(value), known)))
    if faults:
        raise InputError(*faults)
    return cards


def known_sellers(market: Market) -> list[str]:
    """Every provider of the table, of an offer, or of one's own file."""
    return sorted({*providers(), *market.terms, *(offer.provider for offer in market.offers)})


def _has_no_region(offer: Offer) -> bool:
    return offer.region in ("", "any")


_ORDERS: dict[SortBy, Callable[[ListedOffer], tuple[object, ...]]] = {
    "price": lambda row: (row.price.per_hour, row.per_gpu, row.offer.name),
    "gpu-price": lambda row: (row.per_gpu, row.price.per_hour, row.offer.name),
    "memory": lambda row: (-smallest_gib(row.offer) * row.offer.gpus, row.price.per_hour, row.offer.name),
}
"""memory: the most in the whole machine first"""
