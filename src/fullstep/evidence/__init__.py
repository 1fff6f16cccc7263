"""How a number is known. Every counter of a peak carries one of these words."""

from __future__ import annotations

from typing import Literal, NamedTuple

Evidence = Literal["stated", "published", "assumed", "derived", "estimated", "traced", "measured"]

RANK: dict[Evidence, int] = {"assumed": 0, "published": 1, "derived": 2, "estimated": 3, "traced": 4, "stated": 5, "measured": 6}


class Source(NamedTuple):
    """Where a figure comes from: words that let a reader find it again, and the day it was seen."""

    evidence: Evidence
    text: str
    date: str = ""


class Assumption(NamedTuple):
    """A default that was used: its worksheet key, the value taken and why."""

    key: str
    value: object
    why: str


__all__ = ["RANK", "Assumption", "Evidence", "Source"]
