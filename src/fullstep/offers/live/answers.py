"""Reading what a stranger answered: sizes, types and ranges are checked, and a row that does not pass is left out and counted."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

from fullstep.errors import printable
from fullstep.hardware import Card
from fullstep.offers.cards import offered_cards
from fullstep.offers.offer import Offer, Price, PriceKind

LARGEST_ANSWER_BYTES = 32 * 1024 * 1024
MOST_OFFERS = 20_000
"""of one provider; the cheapest are kept"""
LONGEST_NAME = 80
_LONGEST_REASON = 160
_LONGEST_NUMBER = 30
"""digits of a whole number in JSON; longer ones take quadratic time to read and mean nothing"""
_DEAREST = 10_000.0
"""USD for one machine and hour; more is a mistake"""
_MOST_GPUS = 1024
_MOST = 1e7
"""cores, GiB, GB: more is a mistake"""


class FetchError(Exception):
    """Why nothing came from a provider, in one line that is safe to print."""

    def __init__(self, reason: str) -> None:
        super().__init__(one_line(reason))


class Parsed(NamedTuple):
    """What an answer held."""

    offers: tuple[Offer, ...]
    dropped: Mapping[str, int]
    """rows that were left out, by reason"""


def one_line(text: str) -> str:
    """A text in one short line that is safe to print.

    >>> one_line("a" * 200)[-2:], one_line("no\\nroute")
    ('a…', 'no route')
    """
    plain = printable(" ".join(text[: 4 * _LONGEST_REASON].split()))
    return plain if len(plain) <= _LONGEST_REASON else plain[:_LONGEST_REASON] + "…"


def parse_json(data: bytes) -> Any:
    """The answer as JSON; NaN and numbers of absurd length become NaN, which no check lets pass.

    Raises:
        FetchError: it is no JSON
    """
    if len(data) > LARGEST_ANSWER_BYTES:
        raise FetchError(f"an answer of more than {LARGEST_ANSWER_BYTES // 1024**2} MiB")
    try:
        return json.loads(data, parse_int=_whole_number, parse_constant=lambda _: math.nan)
    except (ValueError, RecursionError):
        raise FetchError("the answer is not JSON") from None


def rows_of(table: Any, *path: str) -> list[Mapping[str, Any]]:
    """The list of tables at a path of the document; entries that are no tables are left out.

    Raises:
        FetchError: there is no list
    """
    for key in path:
        table = table.get(key) if isinstance(table, dict) else None
    if not isinstance(table, list):
        raise FetchError(f"the answer has no list {'.'.join(path)}")
    return [row for row in table if isinstance(row, dict)]


def number(value: Any, most: float = _MOST) -> float | None:
    """A finite number above zero and at most ``most``; None: it is none.

    >>> number(2), number("2"), number(True), number(float("nan")), number(-1)
    (2.0, None, None, None, None)
    """
    if type(value) not in (int, float) or not 0 < value <= most or not math.isfinite(value):
        return None
    return float(value)


def gpu_count(value: Any) -> int | None:
    """How many GPUs; None: the value says no such thing.

    >>> gpu_count(8), gpu_count(8.0), gpu_count(0.5), gpu_count(0)
    (8, 8, None, None)
    """
    found = number(value, _MOST_GPUS)
    return int(found) if found is not None and found == int(found) else None


def words(value: Any, longest: int = LONGEST_NAME) -> str:
    """A printable text without blanks at its ends; "" where it is none.

    >>> words(" H100 SXM "), words(5), words("a" * 100), words("a\\x1b[2J")
    ('H100 SXM', '', '', '')
    """
    return value.strip() if isinstance(value, str) and len(value) <= longest and value.isprintable() else ""


def price(value: Any, kind: PriceKind) -> Price | None:
    """USD per hour of one machine; None: the value is no price."""
    found = number(value, _DEAREST)
    return None if found is None else Price(Decimal(str(round(found, 6))), "USD", kind) if round(found, 6) > 0 else None


def narrowest(names: Iterable[str], memory_gb: float | None) -> tuple[Card, ...]:
    """The cards that the most telling of these names means; none: no such card is known.

    >>> [card.key for card in narrowest(["NVIDIA H200", "H200 SXM"], 141)]
    ['H200-SXM']
    """
    found = [cards for name in names if name and (cards := offered_cards(name, "", memory_gb))]
    return min(found, key=len, default=())


def cheapest(offers: Iterable[Offer], dropped: Counter[str]) -> Parsed:
    """At most ``MOST_OFFERS`` of them, the cheapest."""
    ordered = sorted(offers, key=_dollars)
    if len(ordered) > MOST_OFFERS:
        dropped["more than are kept"] += len(ordered) - MOST_OFFERS
    return Parsed(tuple(ordered[:MOST_OFFERS]), dropped)


def _dollars(offer: Offer) -> Decimal:
    return min(found.per_hour for found in (offer.on_demand, offer.interruptible) if found is not None)


def _whole_number(text: str) -> int | float:
    return int(text) if len(text) <= _LONGEST_NUMBER else math.nan
