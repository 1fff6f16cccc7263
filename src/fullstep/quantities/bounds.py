"""A number that is not certain: its low, likely and high value."""

from __future__ import annotations

from typing import NamedTuple


class Bounds(NamedTuple):
    """low <= likely <= high, all in the unit that the name of the holder states."""

    low: float
    likely: float
    high: float

    @classmethod
    def exact(cls, value: float) -> Bounds:
        """A number without uncertainty.

        >>> Bounds.exact(3)
        Bounds(low=3, likely=3, high=3)
        """
        return cls(value, value, value)

    def __add__(self, other: object) -> Bounds:
        """Bounds add up end by end (the errors of two parts may point the same way).

        >>> Bounds(1, 2, 4) + Bounds(10, 10, 10)
        Bounds(low=11, likely=12, high=14)
        """
        if not isinstance(other, Bounds):
            return NotImplemented
        return Bounds(self.low + other.low, self.likely + other.likely, self.high + other.high)

    def as_dict(self) -> dict[str, float]:
        """The form in which the answer writes it."""
        return {"low": self.low, "likely": self.likely, "high": self.high}

    def as_whole(self) -> dict[str, int]:
        """The same for bytes, which are whole."""
        return {"low": round(self.low), "likely": round(self.likely), "high": round(self.high)}
