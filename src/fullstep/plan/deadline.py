"""Whether a run ends within ``goal.finish_within_hours``."""

from __future__ import annotations

from typing import Literal, NamedTuple

from fullstep.quantities import HOUR_SECONDS, Bounds

State = Literal["in_time", "perhaps", "late", "open"]


class Ending(NamedTuple):
    """How a run stands to its deadline."""

    state: State
    seconds: Bounds | None
    """that the run takes; None: not known"""
    deadline_seconds: float
    on_gbit_s: float | None = None
    """the network between the nodes is not stated: ``seconds`` hold on one of this line rate [Gbit/s]"""

    @property
    def is_sure(self) -> bool:
        """All of the bounds lie on the same side of the deadline."""
        return self.seconds is not None and not self.seconds.low <= self.deadline_seconds < self.seconds.high


def judge_run(seconds: Bounds | None, deadline_seconds: float, on_gbit_s: float | None = None) -> Ending:
    """in_time: likely within the deadline. late: even the low bound is beyond it. perhaps: between. open: the time is not known.

    Bounds on time are wide, and one measured step makes them narrow: unlike memory, which ends a run where it does not suffice, a
    likely time is enough to choose by, and the verdict says where the high bound misses the deadline.

    Args:
        seconds: that the run takes [s]
        deadline_seconds: that it may take [s]
        on_gbit_s: the line rate on which that holds, where none is stated [Gbit/s]

    >>> [judge_run(Bounds(8, 9, 12), deadline).state for deadline in (9, 8, 7)], judge_run(None, 9).state
    (['in_time', 'perhaps', 'late'], 'open')
    """
    if seconds is None:
        return Ending("open", None, deadline_seconds)
    state: State = "in_time" if seconds.likely <= deadline_seconds else "perhaps" if seconds.low <= deadline_seconds else "late"
    return Ending(state, seconds, deadline_seconds, on_gbit_s)


def hours_words(seconds: Bounds) -> str:
    """A run's time for people.

    >>> hours_words(Bounds(3600, 7200, 9000)), hours_words(Bounds.exact(1800))
    ('2.0 h (1.0-2.5)', '0.50 h')
    """
    low, likely, high = hours_of(seconds)
    return f"{likely} h" if low == high else f"{likely} h ({low}-{high})"


def hours_of(seconds: Bounds) -> tuple[str, str, str]:
    """The bounds in hours, with a decimal more where they are short."""
    digits = 1 if seconds.likely >= 2 * HOUR_SECONDS else 2
    low, likely, high = (f"{end / HOUR_SECONDS:,.{digits}f}" for end in seconds)
    return low, likely, high


def deadline_words(deadline_seconds: float) -> str:
    """A deadline for people.

    >>> deadline_words(48 * 3600), deadline_words(1.25 * 3600), deadline_words(1.8)
    ('48 h', '1.25 h', '0.0005 h')
    """
    hours = deadline_seconds / HOUR_SECONDS
    return f"{hours:.3g} h" if hours < 1 else f"{hours:,.2f}".rstrip("0").rstrip(".") + " h"
