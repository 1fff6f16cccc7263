"""Offers and providers side by side, for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from fullstep.offers.comparing import Compared, Comparison
from fullstep.offers.listing import ListedOffer
from fullstep.offers.market import OLD_AFTER_DAYS
from fullstep.offers.offer import PRICE_KIND_WORDS
from fullstep.report.offers_text import amount, cards_words, network_words
from fullstep.report.paper import Paper
from fullstep.report.provider_words import UNKNOWN_WORD, traits

_LABEL = 14
_GAP = 2
_LEAST = 26
"""a column narrower than this is no column of words any more: the others follow below"""


def comparison_text(found: Comparison, paper: Paper) -> str:
    """As many columns side by side as there is room for, the others below."""
    at_once = max(2, (paper.width - _LABEL) // (_LEAST + _GAP))
    lines: list[str] = []
    for start in range(0, len(found.columns), at_once):
        lines += [*_block(found.columns[start : start + at_once], paper), ""]
    if any(_is_old(column) for column in found.columns):
        warning = f"(old): seen more than {OLD_AFTER_DAYS} days ago; fullstep offers refresh fetches new prices."
        lines += [paper.ink(piece, "yellow") for piece in paper.sentence(warning, indent=0)]
    return paper.finish(lines if lines[-1] else lines[:-1])


def _block(columns: Sequence[Compared], paper: Paper) -> list[str]:
    width = (paper.width - _LABEL) // len(columns) - _GAP
    lines = _beside("", [_title(column) for column in columns], width, paper, bold=True)
    tables = [dict(_entries(column)) for column in columns]
    for label in dict.fromkeys(label for table in tables for label in table):
        lines += _beside(label, [table.get(label, "") for table in tables], width, paper)
    return lines


def _beside(label: str, texts: Sequence[str], width: int, paper: Paper, *, bold: bool = False) -> list[str]:
    columns = [[piece for line in text.split("\n") for piece in paper.wrapped(line, width)] for text in texts]
    lines = []
    for number, pieces in enumerate(zip_longest(*columns, fillvalue="")):
        left = label if number == 0 else ""
        line = f"{left:<{_LABEL}}" + "".join(f"{piece:<{width + _GAP}}" for piece in pieces)
        lines.append(paper.ink(line.rstrip(), "bold") if bold else line)
    return lines


def _title(column: Compared) -> str:
    return column.provider.name if column.offer is None else column.offer.name


def _entries(column: Compared) -> Iterator[tuple[str, str]]:
    offer = column.offer
    if offer is None:
        yield "Cheapest", _by_card(column.by_card) or "price unknown: enter yours in machines.toml"
    else:
        if column.alike > 1:
            yield "Chosen of", f"{column.alike} offers that fit these words, the cheapest; name the region for another"
        yield "On demand", _price(column.on_demand)
        yield "Taken away", _price(column.interruptible)
        yield "Seen", f"{offer.captured_on} by {offer.source}{f', {offer.seen_at}' if offer.seen_at else ''}"
        yield "GPUs", f"{offer.gpus} x {cards_words(offer.cards, offer.gpus)}"
        yield "Between", f"{network_words(offer)} Gbit/s" if offer.network_gbit_s is not None else UNKNOWN_WORD
        host = ((offer.vcpus, "vCPU"), (offer.host_memory_gib, "GiB RAM"), (offer.disk_gb, "GB disk"))
        yield "Host", ", ".join(f"{UNKNOWN_WORD if size is None else f'{size:,.0f}'} {unit}" for size, unit in host)
        if offer.tier:
            yield "Class", offer.tier
    yield "Country", column.provider.country or UNKNOWN_WORD
    yield from traits(column.provider)


def _price(row: ListedOffer | None) -> str:
    if row is None:
        return UNKNOWN_WORD
    old = " (old)" if row.is_old else ""
    return f"{amount(row.price.per_hour)} {row.price.currency}/h, {amount(row.per_gpu)} a GPU; {PRICE_KIND_WORDS[row.price.kind]}{old}"


def _by_card(rows: Sequence[ListedOffer]) -> str:
    """Prices of one GPU; those of one kind, day and source share a line."""
    groups: dict[str, list[str]] = {}
    for row in rows:
        kind, old = PRICE_KIND_WORDS[row.price.kind], " (old)" if row.is_old else ""
        seen = f"{kind}, {row.offer.captured_on}{old}, {row.offer.source}"
        price = f"{' or '.join(card.key for card in row.offer.cards)} {amount(row.per_gpu)}"
        groups.setdefault(f"{row.price.currency}/h a GPU, {seen}", []).append(price)
    return "\n".join(f"{seen}: {', '.join(prices)}" for seen, prices in groups.items())


def _is_old(column: Compared) -> bool:
    return any(row is not None and row.is_old for row in (column.on_demand, column.interruptible, *column.by_card))
