"""How likely a run keeps to a limit: its work is not certain, and interruptions come by chance."""

from __future__ import annotations

from math import exp, inf, log, sqrt
from statistics import NormalDist
from typing import Literal

from fullstep.cost.attempts import BILLED, Delay, Price, wall
from fullstep.cost.capped import CappedRun
from fullstep.cost.interruption import NEVER_ENDS, delay
from fullstep.cost.taking import Saving, Segments, Taking, check, saves_on_signal, segments_of, tractable, workable_seconds
from fullstep.quantities import Bounds

_NORMAL = NormalDist()
_END = _NORMAL.inv_cdf(0.95)
"""standard deviations from the middle to a bound: low and high are passed with 5 % each"""
_CELLS = 20
"""equally probable values of the work"""
_CERTAIN = 1e-12
"""a variance below this share of the squared mean is rounding"""
_FEW = 8
"""segments, up to which a recursion for each amount of work costs little"""
_NEVER = Delay(inf, inf)


def two_piece_chance(limit: float, bounds: Bounds) -> float:
    """Chance that an uncertain positive quantity is at most ``limit``::

        P = Phi(ln(limit / likely) / sigma),   sigma = ln(likely / low) / 1.645 below likely, ln(high / likely) / 1.645 above

    Args:
        limit: in the unit of the bounds
        bounds: its 5 %, 50 % and 95 % quantiles

    Source:
        two lognormal halves that meet in the median

    >>> [round(two_piece_chance(limit, Bounds(5, 10, 40)), 3) for limit in (5, 10, 20, 40)]
    [0.05, 0.5, 0.795, 0.95]
    """
    low, likely, high = _ordered(bounds)
    if low == high:
        return 1.0 if limit >= likely else 0.0
    share = limit / likely
    if share <= 0.0:
        return 0.0
    ratio, sigma = log(share), (log(likely / low) if limit < likely else log(high / likely)) / _END
    if sigma == 0.0:
        return 0.0 if ratio < 0.0 else 1.0
    return _NORMAL.cdf(ratio / sigma)


def quantiles(bounds: Bounds, count: int) -> list[float]:
    """Equally probable values of that quantity: the middles of ``count`` cells of the same chance.

    >>> [round(value, 2) for value in quantiles(Bounds(5, 10, 40), 3)]  # likely / 2**0.588, likely, likely * 4**0.588
    [6.65, 10.0, 22.6]
    """
    low, likely, high = _ordered(bounds)
    if low == high:
        return [likely] * count
    below, above = log(likely / low) / _END, log(high / likely) / _END
    places = (_NORMAL.inv_cdf((cell + 0.5) / count) for cell in range(count))
    return [likely * exp(place * (below if place < 0.0 else above)) for place in places]


def chance_within(
    limit_seconds: float, work: Bounds, saving: Saving, taking: Taking | None = None, *, clock: Literal["wall", "billed"] = "wall"
) -> float:
    """Chance that a run ends within a limit: by the clock on the wall, or by the seconds that are billed::

        P = mean over the work of   [Ts' <= limit] e**(-Ts'/M)  +  (1 - e**(-Ts'/M)) P(delay <= limit - Ts')

    Ts' is the work with its saves; the first term is the run that nothing interrupts, and is 0 beyond a cap. The delay of the others is
    taken as a gamma variable with their mean and variance, both exact.

    Args:
        limit_seconds: of wall clock or of bill [s]
        work: of training, without saves, with its 5 %, 50 % and 95 % quantiles [s]
        saving: how often, and how long one takes
        taking: how machines go and come back; None: they stay
        clock: which seconds

    Returns:
        0 to 1; does not fall as the limit grows

    Valid:
        largest error against simulation at exact work (2 to 100 h, M 1.5 to 100 h, waits of 0.5 and 2 h, with and without notice and a cap
        of 24 h): 0.05 on the wall clock, 0.02 on average. On the bill 0.05 as well without notice and cap; with them all stops cost much
        the same, the bill goes in steps of a restart, and at a step it is up to 0.32 off, which any doubt about the work smooths out.
        20 values of uncertain work, within 0.015 of 400; with a cap and more than 8 segments, the delay of the nearest whole number of them

    >>> hours = [chance_within(limit, Bounds.exact(20.0), Saving(1.0, 0.05), Taking(72.0, None, 0.0, 0.25, 0.5)) for limit in (20, 21, 24)]
    >>> [round(chance, 2) for chance in hours]  # 20.95 h of work and saves: e**(-20.95 / 72) = 0.75 are not interrupted
    [0.0, 0.75, 0.99]
    """
    workable = two_piece_chance(workable_seconds(limit_seconds, saving), work)
    if taking is None:
        return workable
    saving, taking = tractable(saving, taking)
    amounts = quantiles(work, 1 if work.low == work.high else _CELLS)
    for amount in (amounts[0], amounts[-1]):
        check(amount, saving, taking)
    total = 0.0
    delays = _delays(amounts, work.likely, saving, taking, wall(taking.wait_seconds) if clock == "wall" else BILLED)
    for cell, (amount, added) in enumerate(zip(amounts, delays, strict=True)):
        seconds = segments_of(amount, saving).seconds
        spared = undisturbed_chance(seconds, saving, taking)
        total += spared * min(1.0, max(0.0, workable * len(amounts) - cell))
        if spared < 1.0 and added.mean <= NEVER_ENDS * amount:
            hit = 1.0 - spared
            mean, square = added.mean / hit, (added.variance + added.mean**2) / hit
            total += hit * gamma_chance(limit_seconds - seconds, mean, square - mean * mean)
    return min(1.0, total / len(amounts))


def undisturbed_chance(seconds: float, saving: Saving, taking: Taking) -> float:
    """Chance that nothing interrupts the first life of a machine for so long: ``e**(-t/M)``, and 0 where a cap does.

    Args:
        seconds: t, work with its saves [s]
        saving: the save that a signal asks for ends before the cap
        taking: M, C

    >>> round(undisturbed_chance(1.0, Saving(1.0, 0.1), Taking(2.0)), 3), undisturbed_chance(1.0, Saving(1.0, 0.1), Taking(2.0, 0.5))
    (0.607, 0.0)
    """
    cap = inf if taking.cap_seconds is None else taking.cap_seconds - (saving.signal_seconds if saves_on_signal(saving, taking) else 0.0)
    return exp(-seconds / taking.mean_seconds) if seconds < cap else 0.0


def gamma_chance(limit: float, mean: float, variance: float) -> float:
    """Chance that a gamma variable is at most ``limit``: its cube root is all but normal::

        P = Phi(3 sqrt(k) ((limit / mean)**(1/3) - 1 + 1 / (9 k))),   k = mean**2 / variance

    Args:
        limit: in the unit of the mean
        mean: of the variable
        variance: in that unit squared; 0: it is certain

    Source:
        Wilson and Hilferty 1931, The distribution of chi-square

    Valid:
        0.01 from k = 1 on, where the exponential distribution is

    >>> round(gamma_chance(1.0, 1.0, 1.0), 3)  # 1 - 1/e = 0.632
    0.631
    """
    if limit <= 0.0:
        return 0.0
    shape = mean * mean / variance if variance > _CERTAIN * mean * mean else inf
    if shape == inf:
        return 1.0 if limit >= mean * (1.0 - sqrt(_CERTAIN)) else 0.0
    return _NORMAL.cdf(3.0 * sqrt(shape) * ((limit / mean) ** (1.0 / 3.0) - 1.0 + 1.0 / (9.0 * shape)))


def _delays(amounts: list[float], likely: float, saving: Saving, taking: Taking, price: Price) -> list[Delay]:
    """What interruptions add to each of these amounts of work: with a cap one recursion serves them all, unless it is short."""
    if taking.cap_seconds is None or saves_on_signal(saving, taking):
        return [_delay_or_never(segments_of(amount, saving), saving, taking, price) for amount in amounts]
    if segments_of(amounts[-1], saving).full <= _FEW:
        return [_delay_or_never(segments_of(amount, saving), saving, taking, price) for amount in amounts]
    last = segments_of(likely, saving).last_seconds
    fulls = [max(0, round((amount - last) / saving.interval_seconds)) for amount in amounts]
    try:
        longest = CappedRun(Segments(max(fulls), saving.interval_seconds + saving.save_seconds, last), taking, price)
        return [longest.delay(full) for full in fulls]
    except ArithmeticError:
        return [_NEVER] * len(amounts)


def _delay_or_never(segments: Segments, saving: Saving, taking: Taking, price: Price) -> Delay:
    try:
        return delay(segments, saving, taking, price)
    except ArithmeticError:
        return _NEVER


def _ordered(bounds: Bounds) -> Bounds:
    """Refuse bounds between which no positive quantity lies.

    Raises:
        ValueError: they are not in order, or an uncertain quantity may be 0
    """
    low, likely, high = bounds
    if not (0.0 < low <= likely <= high or 0.0 <= low == high == likely):
        raise ValueError(f"bounds are {low}, {likely}, {high}, allowed: above 0 and in order")
    return bounds
