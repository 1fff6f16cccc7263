"""Machines that are stopped a fixed time after their start (24 h on some clouds), at the latest: a recursion over what is left to do."""

from __future__ import annotations

from math import ceil, exp, inf

from fullstep.cost.attempts import NOTHING, ZERO, Delay, Part, Price, attempted, charged, constant, failing, repeated
from fullstep.cost.taking import Segments, Taking

_EXACT_SEGMENTS = 4000
"""up to here segment by segment; what is left beyond goes at the rate of a long run"""


class Life:
    """A machine from its start to its stop, how segments lie in it, and what a stop costs.

    Args:
        start_seconds: before the first segment: of a restart, or none at the first start [s]
        segments: of the run
        taking: M, R
        cap_seconds: C [s]
        price: what is counted
    """

    def __init__(self, start_seconds: float, segments: Segments, taking: Taking, cap_seconds: float, price: Price) -> None:
        self._start, self._segments, self._price, self._mean = start_seconds, segments, price, taking.mean_seconds
        self._room, self._restarts = cap_seconds - start_seconds, constant(price.per_second * taking.restart_seconds)
        self.most = max(0, ceil(self._room / segments.full_seconds) - 1)
        """full segments that end before the cap"""
        self.step = exp(-segments.full_seconds / self._mean)
        """chance that one more is completed"""
        self.in_full, self.in_last = self._lost(segments.full_seconds), self._lost(segments.last_seconds)
        """an interruption in a full segment, in the last one: it is lost, and a restart is"""
        self._at_cap = self._lost_at_cap(self.most)

    def reach(self, completed: int) -> float:
        """Chance that so many full segments are completed, where the cap does not forbid it."""
        return exp(-(self._start + completed * self._segments.full_seconds) / self._mean)

    def ends(self, left: int) -> bool:
        """With so many full segments left, the run ends before the cap."""
        return left * self._segments.full_seconds + self._segments.last_seconds < self._room

    def undisturbed(self, left: int) -> Part:
        """On the event that it ends in this life, nothing is added."""
        return ZERO.weighted(self.reach(left) * exp(-self._segments.last_seconds / self._mean)) if self.ends(left) else NOTHING

    def after_most(self, left: int) -> Part:
        """A stop after the most full segments that this life can complete: in the last one, or by the cap."""
        if left > self.most:
            return self._at_cap
        return self.in_last if self.ends(left) else self._lost_at_cap(left)

    def _lost(self, seconds: float) -> Part:
        return charged(failing(seconds, self._mean), self._price).then(self._restarts)

    def _lost_at_cap(self, completed: int) -> Part:
        """The cap leaves room for a part of a segment, and comes where nothing else does."""
        room = self._room - completed * self._segments.full_seconds
        sure = charged(constant(room), self._price).then(self._restarts)
        return self._lost(room).either(sure.weighted(exp(-room / self._mean)))


class CappedRun:
    """The delay of runs of different length with the same saves, on machines with a cap.

    With j full segments left, a life completes k of them and leaves j - k to the next one::

        Z_j = sum_k [interrupted after k] (lost + stop + Z_(j-k))          k = 0, ..., K = full segments in a life

    The sum over the middle k, which all lose alike, slides along with j: the recursion costs O(1) a segment.

    Args:
        segments: of the longest run
        taking: with a cap
        price: what is counted

    Raises:
        ZeroDivisionError: no life but the first completes a segment
    """

    def __init__(self, segments: Segments, taking: Taking, price: Price) -> None:
        cap = inf if taking.cap_seconds is None else taking.cap_seconds
        self._price, self._mean, self._restart, self._segments = price, taking.mean_seconds, taking.restart_seconds, segments
        self._first = Life(0.0, segments, taking, cap, price)
        self._life = Life(self._restart, segments, taking, cap, price)
        self._begun = failing(self._restart + segments.full_seconds, self._mean)
        self._undisturbed = self._mean == inf and self._first.ends(segments.full)
        if self._undisturbed:
            return
        if not self._life.ends(0) or (segments.full and not self._life.most):
            raise ZeroDivisionError("no life but the first completes a segment")
        self._later = self._recursion(min(segments.full, _EXACT_SEGMENTS))

    def delay(self, full: int) -> Delay:
        """Of a run with so many full segments, at most those of the longest one.

        Valid:
            exact up to 4000; for each one beyond, mean and variance grow as in a run without end: what lives add over what they complete
            (renewal reward)
        """
        if self._undisturbed:
            return Delay(0.0, 0.0)
        exact = self._first_life(min(full, _EXACT_SEGMENTS))
        beyond = max(0, full - _EXACT_SEGMENTS)
        each = self._in_the_long_run() if beyond else Delay(0.0, 0.0)
        return Delay(exact.mean + beyond * each.mean, exact.variance + beyond * each.variance)

    def _recursion(self, full: int) -> list[Part]:
        """Z_0 to Z_full of a life that begins with a restart."""
        life, step = self._life, self._life.step
        later = [attempted(self._restart + self._segments.last_seconds, self._mean, self._price)]
        fails, kept, out = charged(self._begun, self._price), life.reach(1), step ** (life.most - 1)
        middle = NOTHING
        for left in range(1, full + 1):
            later.append(repeated(fails, kept, _progressed(life, left, middle, later)))
            middle = later[left].either(middle).weighted(step)
            if left >= life.most:
                middle = middle.either(later[left + 1 - life.most].weighted(-out * step))
        return later

    def _first_life(self, left: int) -> Part:
        """The first life begins without a restart."""
        life, later = self._first, self._later
        if not left:
            return life.in_last.then(later[0])
        middle = NOTHING
        for completed in range(1, min(left, life.most)):
            middle = middle.either(later[left - completed].weighted(life.step**completed))
        return life.in_full.then(later[left]).either(_progressed(life, left, middle, later))

    def _in_the_long_run(self) -> Delay:
        """What each segment adds to a run without end: a life adds D and completes G, so E[D] / E[G] =: r and Var(D - r G) / E[G]."""
        life = self._life
        lives = [(number, life.in_full.weighted(life.reach(number))) for number in range(1, life.most)]
        lives.append((0, charged(self._begun, self._price)))
        lives.append((life.most, life.after_most(life.most + 1).weighted(life.reach(life.most))))
        completed = sum(number * part.chance for number, part in lives)
        rate = sum(part.mean for _, part in lives) / completed
        spread = sum(part.square - 2 * rate * number * part.mean + (rate * number) ** 2 * part.chance for number, part in lives)
        return Delay(rate, spread / completed)


def _progressed(life: Life, left: int, middle: Part, later: list[Part]) -> Part:
    """On the event that a life completes a segment at least: what it adds, and what the lives after it do.

    Args:
        life: the first one or a later one
        left: j
        middle: ``sum_k e**(-k s/M) Z_(j-k)`` for 0 < k < the most that it can complete
        later: Z_0 to Z_(j-1) at least
    """
    most = min(left, life.most)
    inner = life.in_full.then(middle).weighted(life.reach(0))
    outer = life.after_most(left).then(later[left - most]).weighted(life.reach(most))
    return inner.either(outer).either(life.undisturbed(left))
