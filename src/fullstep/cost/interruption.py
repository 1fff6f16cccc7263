"""What interruptions make of a run: seconds billed, seconds on the wall clock, and how often it is stopped."""

from __future__ import annotations

from math import inf, sqrt
from typing import NamedTuple

from fullstep.cost.attempts import BILLED, COUNTED, Delay, Price, failing, segment_delay, wall
from fullstep.cost.capped import CappedRun
from fullstep.cost.signalled import signalled_delay
from fullstep.cost.taking import Saving, Segments, Taking, check, saves_on_signal, segments_of, tractable

NEVER_ENDS = 1e4
"""times its work: a run that is expected to be billed for more never ends, for all purposes"""


class Interrupted(NamedTuple):
    """What comes out for a run. ``work + saving + lost = billed``; all of it is inf where the run never ends."""

    billed_seconds: float
    """expected"""
    billed_deviation_seconds: float
    """standard deviation"""
    interruptions: float
    """expected number"""
    wall_seconds: float
    """expected: billed, and a wait for each interruption"""
    wall_deviation_seconds: float
    """standard deviation"""
    saving_seconds: float
    """of the saves that an undisturbed run makes as well"""
    lost_seconds: float
    """work and saves that are done again, saves made on a signal, and restarts"""

    @property
    def ends(self) -> bool:
        """It does, in a time that can be waited for."""
        return self.billed_seconds < inf


def young_interval_seconds(save_seconds: float, mean_seconds: float) -> float:
    """Work between saves that loses least, to first order [s]: ``tau = sqrt(2 d M)``.

    Args:
        save_seconds: d [s]
        mean_seconds: M, between interruptions [s]

    Source:
        Young 1974, A first order approximation to the optimum checkpoint interval

    Valid:
        d far below M

    >>> young_interval_seconds(2, 100)
    20.0
    """
    return sqrt(2 * save_seconds * mean_seconds)


def daly_interval_seconds(save_seconds: float, mean_seconds: float) -> float:
    """Work between saves that loses least, to higher order [s]::

        tau = sqrt(2 d M) (1 + x/3 + x**2/9) - d,   x = sqrt(d / 2M)          for d < 2 M
        tau = M                                                               otherwise

    Args:
        save_seconds: d [s]
        mean_seconds: M, between interruptions [s]

    Returns:
        [s]; 0 where a save costs nothing

    Source:
        Daly 2006, A higher order estimate of the optimum checkpoint interval for restart dumps

    >>> round(daly_interval_seconds(2, 100), 3)  # 20 (1 + 0.1/3 + 0.01/9) - 2
    18.689
    """
    if save_seconds >= 2 * mean_seconds:
        return mean_seconds
    root = sqrt(save_seconds / (2 * mean_seconds))
    return young_interval_seconds(save_seconds, mean_seconds) * (1 + root / 3 + root * root / 9) - save_seconds


def interrupted(work_seconds: float, saving: Saving, taking: Taking) -> Interrupted:
    """Expected values and standard deviations of a run on machines that are taken away, exact for exponential interruptions::

        billed = sum over segments of M e**(R/M) (e**(s/M) - 1),   s = tau + d, and what is left for the last, which needs no save
        wall   = billed + W interruptions

    A stop loses what is not saved. With a notice of at least d nothing is lost (:func:`~fullstep.cost.signalled.signalled_delay`);
    a shorter one gains nothing. With a cap, lives are followed one by one (:class:`~fullstep.cost.capped.CappedRun`).

    Example: 20 h of work, a save of 3 min each hour, M = 4 h, R = 15 min: ``4 e**(1/16) (19 (e**(1.05/4) - 1) + e**(1/4) - 1)`` = 25.49 h.

    Args:
        work_seconds: of training, without saves [s]
        saving: how often, and how long one takes
        taking: how machines go and come back

    Returns:
        the first start (boot, pull, load) is not in it

    Source:
        Daly 2006, A higher order estimate of the optimum checkpoint interval for restart dumps; second moments in the same way

    Valid:
        interruptions that do not depend on how long a machine has run, but for its cap; only complete segments count after a stop without
        notice; what exceeds 1e4 times the work is given as inf

    >>> hours = interrupted(20.0, Saving(1.0, 0.05), Taking(4.0, restart_seconds=0.25, wait_seconds=0.5))
    >>> round(hours.billed_seconds, 3), round(hours.interruptions, 3), round(hours.wall_seconds, 3)
    (25.494, 6.374, 28.681)
    """
    check(work_seconds, saving, taking)
    saving, taking = tractable(saving, taking)
    if work_seconds == 0.0:
        return Interrupted(*(0.0,) * 7)
    segments = segments_of(work_seconds, saving)
    try:
        billed, stops, waited = (delay(segments, saving, taking, price) for price in (BILLED, COUNTED, wall(taking.wait_seconds)))
    except ArithmeticError:
        return Interrupted(*(inf,) * 7)
    saves = segments.full * saving.save_seconds
    total = work_seconds + saves + billed.mean
    if not total <= NEVER_ENDS * work_seconds:
        return Interrupted(*(inf,) * 7)
    on_the_wall = total + taking.wait_seconds * stops.mean
    return Interrupted(total, sqrt(billed.variance), stops.mean, on_the_wall, sqrt(waited.variance), saves, billed.mean)


def delay(segments: Segments, saving: Saving, taking: Taking, price: Price) -> Delay:
    """Mean and variance of what interruptions add to a run, at a price.

    Raises:
        ArithmeticError: it never ends
    """
    if saves_on_signal(saving, taking):
        return signalled_delay(segments.seconds, saving, taking, price)
    if taking.cap_seconds is not None:
        return CappedRun(segments, taking, price).delay(segments.full)
    each, last = (segment_delay(length, taking.restart_seconds, taking.mean_seconds, price) for length in segments[1:])
    return Delay(segments.full * each.mean + last.mean, segments.full * each.variance + last.variance)


def rounding_per_interruption_seconds(mean_seconds: float, step_seconds: float) -> float:
    """What each interruption adds to a bill of started steps [s]: ``step / (1 - e**(-step/M)) - M``.

    Args:
        mean_seconds: M [s]
        step_seconds: of the bill [s]

    Returns:
        [s]: half a step for a long life, a whole one for a short

    Source:
        the step less the part of it that an interruption leaves used

    >>> round(rounding_per_interruption_seconds(1.0, 1.0), 4)
    0.582
    """
    used = failing(step_seconds, mean_seconds)
    return step_seconds - used.mean / used.chance if used.chance else step_seconds / 2
