"""Offers as a list, for the terminal: two lines each, every price with its kind, its day and where it was seen."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import NamedTuple

from fullstep.hardware import Card, default_node
from fullstep.offers.catalogue import sources
from fullstep.offers.listing import ListedOffer, Listing, listed
from fullstep.offers.market import OLD_AFTER_DAYS
from fullstep.offers.offer import PRICE_KIND_WORDS, Offer, Price
from fullstep.offers.provider import Provider
from fullstep.quantities import GB
from fullstep.report.paper import Paper, cut
from fullstep.report.provider_words import trait_lines
from fullstep.report.wording import gib

UNKNOWN = "–"
_HEADS = ("each", "GPUs", "GiB", "inside", "between", "vCPU", "RAM", "disk")


class _Widths(NamedTuple):
    """Of the columns."""

    price: int
    each: int
    rest: tuple[int, ...]
    """from GPUs on"""

    @property
    def indent(self) -> int:
        """Where the column of GPUs begins."""
        return self.price + self.each + 3


_NARROW, _WIDE = _Widths(7, 7, (18, 6, 11, 9, 4, 4, 5)), _Widths(9, 8, (22, 7, 13, 11, 6, 7, 8))
"""80 and 100 signs together"""
_ROOM = 100
_LINKS = {"nvswitch": "NVLink", "nvlink_bridge": "bridge", "pcie_p2p": "PCIe", "pcie_host": "host"}


def offers_text(found: Listing, paper: Paper) -> str:
    """The list, what is not in it and why, and a legend."""
    if not found.rows:
        lines = _empty_lines(found, paper)
    else:
        widths = _WIDE if paper.width >= _ROOM else _NARROW
        lines = [paper.ink(_head(found, widths), "bold")]
        for row in found.rows:
            lines += _row_lines(row, found, widths, paper)
        lines += ["", *_legend_lines(found, paper)]
    lines += _note_lines(found, paper)
    for provider in found.asked_providers:
        lines += ["", *trait_lines(provider, paper)]
    return paper.finish(lines)


def amount(value: Decimal) -> str:
    """Money in a column: whole from a thousand on, hundredths from ten on, thousandths below.

    >>> amount(Decimal("1234.5")), amount(Decimal("55.04")), amount(Decimal("1.8612")), amount(Decimal("0.00004"))
    ('1,234', '55.04', '1.861', '0.00004')
    """
    if value >= 1000:
        return f"{value:,.0f}"
    if value >= 10:
        return f"{value:,.2f}"
    return f"{value:.3f}" if value == 0 or value >= Decimal("0.001") else f"{value:.1g}"


def memory_words(card: Card) -> str:
    """What the driver reports [GiB]; ~ where nobody published it.

    >>> from fullstep.hardware import find_card
    >>> memory_words(find_card("H100-SXM")), memory_words(find_card("A30"))
    ('79.6', '~23.5')
    """
    return f"{'' if card.reported_bytes is not None else '~'}{gib(card.total_bytes)}"


def link_words(card: Card, gpus: int) -> str:
    """What joins the GPUs of one machine, and its rate in both directions together [GB/s].

    >>> from fullstep.hardware import find_card
    >>> link_words(find_card("H100-SXM"), 8), link_words(find_card("L4"), 1)
    ('NVLink 900', '')
    """
    if gpus == 1:
        return ""
    node = default_node(card, gpus)
    rate = node.link_bytes_per_second_bidirectional
    kind = "xGMI" if node.link == "nvswitch" and card.vendor == "AMD" else _LINKS[node.link]
    return kind if rate is None else f"{kind} {rate / GB:.0f}"


def network_words(offer: Offer) -> str:
    """What joins machines [Gbit/s]."""
    rate = UNKNOWN if offer.network_gbit_s is None else f"{offer.network_gbit_s:g}"
    return f"{rate} {({True: 'RDMA', False: 'TCP', None: ''})[offer.rdma]}".strip()


def price_words(price: Price | None) -> str:
    """An amount with its kind; "unknown" where there is none."""
    return "unknown" if price is None else f"{amount(price.per_hour)} {price.currency}/h, {PRICE_KIND_WORDS[price.kind]}"


def cards_words(cards: Sequence[Card], gpus: int) -> str:
    """All cards that an offer may be, with memory and link."""
    return " or ".join(f"{card.key} ({', '.join(filter(None, (memory_words(card) + ' GiB', link_words(card, gpus))))})" for card in cards)


def _head(found: Listing, widths: _Widths) -> str:
    left = f"{found.filters.currency + '/h':>{widths.price}} {_HEADS[0]:>{widths.each}}  "
    return left + _cells(_HEADS[1:], widths.rest)


def _cells(texts: Sequence[str], widths: Sequence[int]) -> str:
    """Columns; what is long is cut. Names stand left, numbers right."""
    left = (0, 2, 3)
    pieces = [
        f"{cut(text, width):<{width}}" if place in left else f"{cut(text, width):>{width}}"
        for place, (text, width) in enumerate(zip(texts, widths, strict=True))
    ]
    return " ".join(pieces)


def _row_lines(row: ListedOffer, found: Listing, widths: _Widths, paper: Paper) -> list[str]:
    offer = row.offer
    one = offer.cards[0]
    several = len(offer.cards) > 1
    sizes = list(dict.fromkeys(memory_words(card) for card in offer.cards))
    cells = (
        f"{offer.gpus}x {offer.gpu if several else one.key}{'?' if several else ''}",
        sizes[0] if len(sizes) == 1 else f"{sizes[0]}?",
        ("" if offer.gpus == 1 else "see below") if several else link_words(one, offer.gpus),
        network_words(offer),
        *(UNKNOWN if size is None else f"{size:.0f}" for size in (offer.vcpus, offer.host_memory_gib, offer.disk_gb)),
    )
    numbers = f"{amount(row.price.per_hour):>{widths.price}} {amount(row.per_gpu):>{widths.each}}  "
    lines = [paper.ink(numbers, "bold") + _cells(cells, widths.rest)]
    said = [offer.name, PRICE_KIND_WORDS[row.price.kind], f"{offer.captured_on}{' (old)' if row.is_old else ''}", offer.source]
    if not found.filters.interruptible and offer.interruptible is not None:
        other = listed(offer, found.market, found.filters.currency, found.today, interruptible=True)
        said.append(f"interruptible {price_words(other.price if other else None)}")
    if offer.machines is not None:
        said.append(f"{offer.machines} of them")
    if several:
        said.append(f"may be {cards_words(offer.cards, offer.gpus)}")
    return lines + [paper.ink(piece, "dim") for piece in paper.sentence(" · ".join(said), indent=widths.indent)]


def _legend_lines(found: Listing, paper: Paper) -> list[str]:
    more = found.found - len(found.rows)
    count = f"{found.found} offer{'s' if found.found > 1 else ''}"
    shown = f"{len(found.rows)} of {count}; --limit {found.found} shows all." if more else f"{count}."
    lines = paper.sentence(shown, indent=0)
    old = sum(row.is_old for row in found.rows)
    if old:
        warning = f"{old} of {len(found.rows)} seen more than {OLD_AFTER_DAYS} days ago (old): fullstep offers refresh fetches new prices."
        lines += [paper.ink(piece, "yellow") for piece in paper.sentence(warning, indent=0)]
    units = (
        f"{found.filters.currency}/h: the whole machine; each: one GPU. GiB: of one card as its driver reports it, ~ where nobody "
        "published it. inside: between its GPUs, GB/s both ways (host: through the host's memory). between: between machines, Gbit/s. "
        "RAM GiB, disk GB of the machine. "
        f"{UNKNOWN}: not known. ?: the form of the card is not said."
    )
    lines += [paper.ink(piece, "dim") for piece in paper.sentence(units, indent=0)]
    for code in found.sources:
        source = sources()[code]
        lines += [paper.ink(piece, "dim") for piece in paper.sentence(f"{code}: {source.where} ({source.licence})", indent=0)]
    return lines + _rate_lines(found, paper)


def _rate_lines(found: Listing, paper: Paper) -> list[str]:
    wanted = found.filters.currency
    used = {(row.offer.price(found.filters.interruptible) or row.price).currency for row in found.rows}
    lines: list[str] = []
    for currency in sorted((used | {wanted} if used - {wanted} else set()) - {"USD"}):
        rate = found.market.rates[currency]
        old = f", {(found.today - rate.on).days} days ago: state yours in machines.toml" if rate.on and (found.today - rate.on).days else ""
        lines += paper.sentence(f"1 {currency} = {rate.usd_for_one} USD on {rate.on}{old}.", indent=0)
    return lines


def _empty_lines(found: Listing, paper: Paper) -> list[str]:
    silent = {provider.name for provider in found.without_price}
    asked = found.filters.providers
    why = f"no price of {', '.join(asked)} is known" if asked and set(asked) <= silent else found.emptied_by
    return [paper.ink(piece, "bold") for piece in paper.sentence(f"No offer: {why}.", indent=0)]


def _note_lines(found: Listing, paper: Paper) -> list[str]:
    lines: list[str] = []
    if found.other_price_only:
        other = "on demand: leave --interruptible out" if found.filters.interruptible else "interruptible: --interruptible lists them"
        lines += paper.sentence(f"{found.other_price_only} more with a price only {other}.", indent=0)
    if found.region_not_said:
        lines += paper.sentence(f"{found.region_not_said} left out name no region.", indent=0)
    if found.without_price:
        lines += paper.sentence(f"Price unknown: enter yours in machines.toml: {_named(found.without_price)}.", indent=0)
    return lines


def _named(providers: Sequence[Provider]) -> str:
    return ", ".join(f"{found.name} ({found.country})" if found.country else found.name for found in providers)
