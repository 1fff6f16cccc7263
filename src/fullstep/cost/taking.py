"""How machines are taken away and how a run saves against it; the segments between its saves."""

from __future__ import annotations

from math import ceil, inf, isfinite
from typing import NamedTuple

_UNREACHED = 42.0
"""mean lives: what outlives them has a chance below 1e-18"""
_MOST_SEGMENTS = 1500
"""of one life"""
_WHOLE = 1e-9
"""share of a segment by which work may miss a whole number of them (sums of floats do)"""


class Taking(NamedTuple):
    """How an interruptible set of machines is taken away, and how it comes back. All in seconds."""

    mean_seconds: float
    """M, billed, between two interruptions of the whole set: they come at any time alike; inf: never"""
    cap_seconds: float | None = None
    """C: so long after its start a machine is stopped for certain"""
    notice_seconds: float = 0.0
    """from the signal to the stop; 0: none"""
    restart_seconds: float = 0.0
    """R, billed: boot, pull, load the checkpoint"""
    wait_seconds: float = 0.0
    """W, mean, not billed: until there is capacity again; for deviations and chances it is taken as exponential"""


class Saving(NamedTuple):
    """How a run saves."""

    interval_seconds: float
    """tau: work between two saves"""
    save_seconds: float
    """d: training stands so long for one"""
    write_seconds: float = 0.0
    """until it is on disk, where that takes longer than training stands"""

    @property
    def signal_seconds(self) -> float:
        """What a save takes that has to be on disk before the machine stops."""
        return max(self.save_seconds, self.write_seconds)


class Segments(NamedTuple):
    """A run as it lies between its saves: ``full`` times work and a save, then work without one."""

    full: int
    full_seconds: float
    """tau + d; where one segment is all, the work and d"""
    last_seconds: float
    """of work, at most tau: what follows it is the end"""

    @property
    def seconds(self) -> float:
        """Of the run that nothing interrupts."""
        return self.full * self.full_seconds + self.last_seconds


def saves_on_signal(saving: Saving, taking: Taking) -> bool:
    """The notice is long enough for a save.

    >>> [saves_on_signal(Saving(3600, 60), Taking(86400, notice_seconds=notice)) for notice in (30, 120)]
    [False, True]
    """
    return taking.notice_seconds > 0.0 and taking.notice_seconds >= saving.signal_seconds


def segments_of(work_seconds: float, saving: Saving) -> Segments:
    """Work cut at its saves; none is due at the end.

    Args:
        work_seconds: without saves [s]
        saving: how often, and how long one takes

    >>> segments_of(60, Saving(20, 1)), segments_of(50, Saving(20, 1)).seconds
    (Segments(full=2, full_seconds=21, last_seconds=20), 52)
    """
    interval, save = saving.interval_seconds, saving.save_seconds
    full = max(0, ceil(work_seconds / interval - _WHOLE) - 1)
    return Segments(full, min(interval, work_seconds) + save, work_seconds - full * interval if full else work_seconds)


def workable_seconds(limit_seconds: float, saving: Saving) -> float:
    """The most work that ends within a limit with its saves, where nothing interrupts it [s]; the inverse of ``Segments.seconds``.

    >>> [workable_seconds(limit, Saving(20.0, 1.0)) for limit in (52.0, 62.0, 41.5)]
    [50.0, 60.0, 40.0]
    """
    interval, save = saving.interval_seconds, saving.save_seconds
    if limit_seconds <= interval or not isfinite(limit_seconds):
        return limit_seconds
    whole, rest = divmod(limit_seconds, interval + save)
    return whole * interval + min(rest, interval)


def tractable(saving: Saving, taking: Taking) -> tuple[Saving, Taking]:
    """The same with a cap that lets itself be reckoned: one that hardly any life reaches is none, and where a life has more than 1,500
    segments, as many as make it 1,500 are taken together (work and saves of all of them).

    Valid:
        a stop then loses up to 1/1500 of a life more; not where a signal saves all work anyway

    >>> tractable(Saving(1.0, 0.0), Taking(1.0, cap_seconds=3000.0))[1].cap_seconds is None
    True
    >>> tractable(Saving(1.0, 0.5), Taking(1e9, cap_seconds=4500.0))[0]
    Saving(interval_seconds=2.0, save_seconds=1.0, write_seconds=0.0)
    """
    cap = taking.cap_seconds
    if cap is None or saves_on_signal(saving, taking):
        return saving, taking
    if cap > _UNREACHED * taking.mean_seconds:
        return saving, taking._replace(cap_seconds=None)
    together = ceil(cap / (saving.interval_seconds + saving.save_seconds) / _MOST_SEGMENTS)
    if together > 1:
        saving = saving._replace(interval_seconds=together * saving.interval_seconds, save_seconds=together * saving.save_seconds)
    return saving, taking


def check(work_seconds: float, saving: Saving, taking: Taking) -> None:
    """Refuse what would give a number without a meaning.

    Raises:
        ValueError: a mean, interval or cap that is not above zero, or a time below it

    >>> check(1.0, Saving(1.0, 0.0), Taking(0.0))
    Traceback (most recent call last):
    ValueError: mean_seconds is 0.0, allowed: above 0
    """
    above = {"mean_seconds": taking.mean_seconds, "interval_seconds": saving.interval_seconds, "cap_seconds": taking.cap_seconds}
    least = {
        "work_seconds": work_seconds,
        "save_seconds": saving.save_seconds,
        "write_seconds": saving.write_seconds,
        "notice_seconds": taking.notice_seconds,
        "restart_seconds": taking.restart_seconds,
        "wait_seconds": taking.wait_seconds,
    }
    for name, value in above.items():
        if value is not None and not value > 0.0:
            raise ValueError(f"{name} is {value}, allowed: above 0")
    for name, value in least.items():
        if not 0.0 <= value < inf:
            raise ValueError(f"{name} is {value}, allowed: 0 or above, and finite")
