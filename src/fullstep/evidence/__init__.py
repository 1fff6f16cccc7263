"""How a number is known. Every counter of a peak carries one of these words."""

from __future__ import annotations

from typing import Literal, NamedTuple

Evidence = Literal["stated", "published", "assumed", "derived", "estimated", "traced", "measured"]


class Assumption(NamedTuple):
    """A default that was used: its worksheet key, the value taken and why."""

    key: str
    value: object
    why: str


__all__ = ["Assumption", "Evidence"]
