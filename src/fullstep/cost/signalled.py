"""A signal ahead of the stop that is long enough for a save: no work is lost, and only the stops are to be counted."""

from __future__ import annotations

from math import exp, expm1, inf
from typing import NamedTuple

from fullstep.cost.attempts import Delay, Price, attempted, constant
from fullstep.cost.taking import Saving, Taking

_NEGLIGIBLE = 42.0
"""mean lives without a chance stop: their chance is below 1e-18"""


_MOST_STOPS = 5000
"""that are counted one by one"""


class Count(NamedTuple):
    """Of stops."""

    mean: float
    variance: float


def stops(seconds: float, mean_seconds: float, first_seconds: float = inf, later_seconds: float = inf) -> Count:
    """Stops while a run makes ``t`` seconds of progress: at rate 1/M, and for certain where none came for ``c`` (the first time for c0).

    A certain stop at time u needs a start at ``u - n c`` and no chance stop since, which sums over n to::

        E[N]        = t/M + sum_n e**(-n c/M) (t - n c)+ / M  +  sum_n e**(-a_n/M) [a_n < t]              n = 1, 2, ...
        E[N (N-1)]  = sum_n e**(-n c/M) ((n + 1) ((t - n c)+ / M)**2 + 2 n (t - n c)+ / M)                 n = 0, 1, ...
                      + 2 sum_n e**(-a_n/M) (n (t - a_n)+ / M + (n - 1) [a_n < t])                         n = 1, 2, ...
        a_n         = c0 + (n - 1) c

    Args:
        seconds: t, work with its saves [s]
        mean_seconds: M [s]
        first_seconds: c0, of progress until the first certain stop [s]
        later_seconds: c, of progress between a restart and the next certain stop [s]

    Returns:
        mean and variance, exact up to some thousands of certain stops, then those of a run without end

    Source:
        renewal theory: the stops renew the process, so E[N (N-1)] is twice the integral of one renewal density over the mean of the next

    >>> stops(3.0, 2.0), stops(10.0, inf, 4.0, 3.0).mean  # Poisson; at 4 and at 7
    (Count(mean=1.5, variance=1.5), 2.0)
    """
    rate, mean, pairs = 1.0 / mean_seconds, 0.0, 0.0
    if min(seconds, _NEGLIGIBLE * mean_seconds) > _MOST_STOPS * later_seconds:
        return _in_the_long_run(seconds, mean_seconds, later_seconds)
    number, elapsed, stopped = 0, 0.0, inf
    while (sooner := min(elapsed, stopped)) < seconds and sooner * rate < _NEGLIGIBLE:
        if elapsed < seconds:
            weight, left = exp(-elapsed * rate), (seconds - elapsed) * rate
            mean += weight * left
            pairs += weight * left * ((number + 1) * left + 2 * number)
        if stopped < seconds:
            weight, left = exp(-stopped * rate), (seconds - stopped) * rate
            mean += weight
            pairs += 2 * weight * (number * left + number - 1)
        number, elapsed, stopped = number + 1, elapsed + later_seconds, stopped + later_seconds if number else first_seconds
    return Count(mean, max(0.0, pairs + mean - mean * mean))


def _in_the_long_run(seconds: float, mean_seconds: float, later_seconds: float) -> Count:
    """Stops where thousands come: a life makes ``G = min(Exp(M), c)`` of progress, so there are t / E[G], with variance t Var(G) / E[G]**3.

    Source:
        the central limit theorem of renewal processes
    """
    spared = exp(-later_seconds / mean_seconds)
    progress = -mean_seconds * expm1(-later_seconds / mean_seconds)
    square = 2 * mean_seconds * (progress - later_seconds * spared)
    return Count(seconds / progress, seconds * max(0.0, square - progress**2) / progress**3)


def signalled_delay(seconds: float, saving: Saving, taking: Taking, price: Price) -> Delay:
    """What interruptions add to a run that saves on the signal::

        billed = Ts' + E[N] (d + M (e**(R/M) - 1))                 without a cap  Ts' (e**(R/M) + d/M),  as E[N] = Ts'/M

    Each stop costs the save that answers it and a restart. That may be interrupted itself: nothing is new to save, and it begins anew.

    Args:
        seconds: Ts', work with its periodic saves [s]
        saving: d, of a save that is on disk
        taking: M, R, C
        price: what is counted

    Raises:
        ZeroDivisionError: a machine's life is too short for a restart and a save

    Valid:
        the save begins at the signal, and at a cap so early that it just ends in time; a periodic save that a signal meets goes on after
        the restart
    """
    restart, mean = taking.restart_seconds, taking.mean_seconds
    first = inf if taking.cap_seconds is None else taking.cap_seconds - saving.signal_seconds
    later = first - restart
    if mean == inf and seconds <= first:
        return Delay(0.0, 0.0)
    if later <= 0.0:
        raise ZeroDivisionError("no life reaches beyond its restart")
    count = stops(seconds, mean, first, later)
    cost = price.stop.then(attempted(restart, mean, price)).then(constant(price.per_second * (saving.signal_seconds + restart)))
    return Delay(count.mean * cost.mean, count.mean * cost.variance + count.variance * cost.mean**2)
