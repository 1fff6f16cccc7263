"""Attempts until one succeeds: first and second moments of what failing adds, exactly.

A quantity is known here by its moments on an event (:class:`Part`). Two events that exclude each other add up; what happens one after the
other multiplies, like series cut off after the second power. Whatever machines that are taken away do to a run is written with these two.
Only what is added to an undisturbed run is counted, never the run itself: no term is negative, so that rare interruptions lose no digits.
"""

from __future__ import annotations

from functools import lru_cache
from math import exp, expm1, factorial
from typing import NamedTuple

_SERIES_BELOW = 2.0
_TERMS = tuple(1.0 / factorial(order) for order in range(26, 2, -1))
"""of a series in a number below 2, the last one first: ``2**26 / 26!`` is below 1e-18"""


class Part(NamedTuple):
    """A quantity on an event A: ``P(A)``, ``E[x; A]`` and ``E[x**2; A]``."""

    chance: float
    mean: float
    square: float

    def either(self, other: Part) -> Part:
        """On the one event or on the other, which exclude each other."""
        return Part(self.chance + other.chance, self.mean + other.mean, self.square + other.square)

    def then(self, other: Part) -> Part:
        """The sum of two quantities where both events happen, independent of each other.

        >>> constant(2).then(constant(3))
        Part(chance=1.0, mean=5.0, square=25.0)
        """
        return Part(
            self.chance * other.chance,
            self.mean * other.chance + self.chance * other.mean,
            self.square * other.chance + 2 * self.mean * other.mean + self.chance * other.square,
        )

    def times(self, factor: float) -> Part:
        """The quantity times a factor."""
        return Part(self.chance, self.mean * factor, self.square * factor * factor)

    def weighted(self, chance: float) -> Part:
        """The event only where another one of this chance happens."""
        return Part(self.chance * chance, self.mean * chance, self.square * chance)

    @property
    def variance(self) -> float:
        """Of a quantity whose event is certain."""
        return max(0.0, self.square - self.mean * self.mean)


NOTHING = Part(0.0, 0.0, 0.0)
"""an event that does not happen"""
ZERO = Part(1.0, 0.0, 0.0)
"""a quantity that is 0 for certain"""


def constant(value: float) -> Part:
    """A quantity that is certain."""
    return Part(1.0, value, value * value)


class Price(NamedTuple):
    """What is counted: ``per_second`` for each second that an interruption adds to the bill, and ``stop`` for the interruption itself."""

    per_second: float
    stop: Part


class Delay(NamedTuple):
    """What interruptions add to a run."""

    mean: float
    variance: float


BILLED = Price(1.0, ZERO)
"""seconds that are billed"""
COUNTED = Price(0.0, constant(1.0))
"""interruptions"""


def wall(wait_seconds: float) -> Price:
    """Seconds by the clock on the wall: those billed, and an exponential wait for each interruption.

    >>> wall(3.0)
    Price(per_second=1.0, stop=Part(chance=1.0, mean=3.0, square=18.0))
    """
    return Price(1.0, Part(1.0, wait_seconds, 2 * wait_seconds * wait_seconds))


@lru_cache(maxsize=4096)
def failing(seconds: float, mean_seconds: float) -> Part:
    """When an interruption comes, on the event that it comes before ``seconds`` are over::

        E[x**k; x < s] = k! M**k P(at least k + 1 events of a Poisson count with mean s / M)

    Args:
        seconds: s, of the attempt [s]
        mean_seconds: M, between interruptions [s]

    Returns:
        chance; mean [s] and mean square [s**2] on it

    Source:
        the incomplete gamma function of whole order; for a short attempt by its series, in which nothing cancels

    >>> [round(value, 6) for value in failing(1.0, 1.0)]  # 1 - 1/e, 1 - 2/e, 2 - 5/e
    [0.632121, 0.264241, 0.160603]
    """
    rate = seconds / mean_seconds
    kept = exp(-rate)
    if rate > _SERIES_BELOW:
        twice = 1.0 - (1.0 + rate) * kept
        return Part(1.0 - kept, mean_seconds * twice, 2 * mean_seconds * mean_seconds * (twice - rate * rate / 2 * kept))
    tail = 0.0
    for term in _TERMS:
        tail = term + rate * tail
    first = rate * kept * seconds
    return Part(-expm1(-rate), first * (0.5 + rate * tail), 2 * first * seconds * tail)


def repeated(fails: Part, kept: float, ends: Part) -> Part:
    """An attempt that either ends or fails and is made again, as often as it takes::

        x = ends + fails x        so that        x = ends / (1 - fails)

    Args:
        fails: what one failure adds
        kept: 1 - fails.chance, which the caller knows to all digits
        ends: what is added where the attempt does not fail, or does not come back to its beginning

    Raises:
        ZeroDivisionError: it never ends

    >>> repeated(Part(0.75, 0.75, 0.75), 0.25, Part(0.25, 0.0, 0.0))  # three failures on average, variance 0.75 / 0.25**2
    Part(chance=1.0, mean=3.0, square=21.0)
    """
    chance = ends.chance / kept
    mean = (ends.mean + fails.mean * chance) / kept
    return Part(chance, mean, (ends.square + 2 * fails.mean * mean + fails.square * chance) / kept)


def attempted(seconds: float, mean_seconds: float, price: Price) -> Part:
    """What failures add to something that is begun anew until it lasts for ``seconds`` [as the price]::

        E = M (e**(s/M) - 1) - s          by the second

    Source:
        Daly 2006, A higher order estimate of the optimum checkpoint interval for restart dumps

    >>> round(attempted(1.0, 1.0, BILLED).mean, 6)  # e - 2
    0.718282
    """
    kept = exp(-seconds / mean_seconds)
    return repeated(charged(failing(seconds, mean_seconds), price), kept, Part(kept, 0.0, 0.0))


def charged(lost: Part, price: Price) -> Part:
    """Seconds that an interruption undoes, at their price."""
    return lost.times(price.per_second).then(price.stop)


@lru_cache(maxsize=1024)
def segment_delay(seconds: float, restart_seconds: float, mean_seconds: float, price: Price) -> Part:
    """What interruptions add to one segment, whose first attempt goes on from the one before and whose others begin with a restart::

        E = M e**(R/M) (e**(s/M) - 1) - s          by the second

    A failed first attempt loses x < s, and then R + s is attempted until it succeeds.

    Args:
        seconds: s, work and save [s]
        restart_seconds: R [s]
        mean_seconds: M [s]
        price: what is counted

    Source:
        Daly 2006, A higher order estimate of the optimum checkpoint interval for restart dumps; failures in restart and save are included

    >>> round(segment_delay(1.0, 1.0, 1.0, BILLED).mean, 6)  # e (e - 1) - 1
    3.670774
    """
    again = attempted(restart_seconds + seconds, mean_seconds, price).then(constant(price.per_second * restart_seconds))
    return charged(failing(seconds, mean_seconds), price).then(again)
