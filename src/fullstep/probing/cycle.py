"""Which optimizer step a training is in, told from the calls of its optimizers and of backward alone. Knows nothing of torch.

A step may be made by several optimizers, one after the other, and by one of them in several calls (DeepSpeed: one call per group of
parameters). It ends where the first optimizer of the cycle steps again after another backward. So what happens after an optimizer's call
belongs to no step until the next call: then it is known whether that call begins a new one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple, Protocol

Figures = dict[str, list[Any]]
"""by device; see :mod:`fullstep.probing.memory`"""
BEFORE = "load_and_forward"
"""from the start of the program to its first backward"""
FORWARD, BACKWARD, OPTIMIZER_STEP = "forward", "backward", "optimizer_step"
UNTOLD = "forward_and_backward"
"""where backward is not called by its usual name"""


class Moment(Protocol):
    """A point in time of the device."""

    def since(self, earlier: Any) -> float:
        """Seconds; may wait until the device has come here."""

    @property
    def is_past(self) -> bool:
        """The device has come here."""


class Part(NamedTuple):
    """Memory from one call to the next."""

    micro_batch: int
    """from 1 on; 0: of the optimizer, or outside of the step"""
    phase: str
    figures: Figures


class Step(NamedTuple):
    """An optimizer step that is over."""

    number: int
    """from 1 on"""
    seconds: float | None
    """from the end of the step before; None: there was none"""
    data_seconds: float | None
    """waiting for torch's DataLoader; None: there is none"""
    parts: tuple[Part, ...]
    is_alike: bool
    """it began with the same optimizer as the step before, and had as many calls of optimizers"""


class Cycle:
    """Is told of calls as they come.

    Args:
        close: ends a stretch of memory and begins the next one
        now: the time
        over: is given each step that is over
        beside: is given what was no part of a step, and the seconds it took
    """

    def __init__(
        self, close: Callable[[], Figures], now: Callable[[], Moment], over: Callable[[Step], None],
        beside: Callable[[Part, float | None], None] = lambda _part, _seconds: None,
    ) -> None:  # fmt: skip
        self._close, self._now, self._over, self._beside = close, now, over, beside
        self.number = 1
        """of the step under way"""
        self._parts: list[Part] = []
        self._next: list[Part] = []
        """after the last call of an optimizer: of this step or of the next one"""
        self._data: list[float | None] = [None, None]
        """the same of the seconds that were waited for data"""
        self._first: int | None = None
        self._began_with: int | None = None
        """first optimizer of this step, and of the one before"""
        self._inside: list[tuple[int, FrameType | None]] = []
        self._backward = 0
        self._micro_batches = self._since = 0
        """calls of backward in this step, and since the last call of an optimizer"""
        self._ever = self._in_this_backward = False
        self._calls, self._usual = 0, 0
        """calls of optimizers in this step, and in the one before"""
        self._begun: Moment | None = None
        self._ended: Moment | None = None
        self._went_on: Moment | None = None
        self.loaded = False

    @property
    def at(self) -> tuple[int, str]:
        """The step and the phase that go on."""
        if self._backward:
            return self._ahead, BACKWARD
        if self._inside:
            return self.number, OPTIMIZER_STEP
        return self._ahead, FORWARD if self._ever or self.loaded or self._calls else BEFORE

    @property
    def _ahead(self) -> int:
        return self.number + (1 if self._calls else 0)

    @property
    def is_over(self) -> bool:
        """As many calls of optimizers have been made as in the step before."""
        return bool(self._calls) and self._calls == self._usual and not self._backward and not self._inside

    @property
    def made(self) -> int:
        """Steps that have been made, as far as that is known."""
        return self.number - (0 if self.is_over else 1)

    def backward_begins(self) -> None:
        """The outermost counts; one inside of an optimizer (LBFGS) is a part of its step."""
        if self._is_inside():
            return
        if not self._backward:
            if self.is_over:
                self.finish()
            self._enter(FORWARD if self._ever or self.loaded else BEFORE)
            self._ever, self._in_this_backward = True, False
        self._backward += 1

    def backward_ends(self, *, failed: bool = False) -> None:
        """A failed one ends no stretch: whoever is told of the failure looks where it happened."""
        if not self._backward:
            return
        self._backward -= 1
        if self._backward or failed:
            return
        self._since += 1
        if self._in_this_backward:  # its optimizers were called inside of it
            self._parts.append(Part(1, BACKWARD, self._close()))
            self._since, self._ended = 0, self._now()
            self._finish_at_once()
        else:
            self._enter(BACKWARD)

    def optimizer_begins(self, optimizer: int, frame: FrameType | None = None) -> None:
        """An optimizer is called.

        Args:
            optimizer: its identity
            frame: of the call
        """
        if not self._is_inside():
            again = self._first == optimizer and bool(self._calls)
            if again and (self._since or not self._ever or (self._backward and not self._in_this_backward)):
                self.finish()
            self._belongs_here()
            if self._first is None:
                self._first = optimizer
            if not self._since and not self._calls and not self._backward:
                self._parts.append(Part(1, UNTOLD if self.number > 1 or self.loaded else BEFORE, self._close()))
            self._since, self._in_this_backward = 0, bool(self._backward)
        self._inside.append((optimizer, frame))

    def optimizer_ends(self) -> None:
        """The same is done."""
        if self._inside:
            self._inside.pop()
        if self._inside:
            return
        self._calls += 1
        if not self._backward:
            self._parts.append(Part(0, OPTIMIZER_STEP, self._close()))
            self._ended = self._now()
            self._finish_at_once()

    def _finish_at_once(self) -> None:
        """Where it is known that no optimizer follows, and nothing has to be waited for. Otherwise the next backward comes first."""
        if self.is_over and self._ended is not None and self._ended.is_past:
            self.finish()

    def waited(self, seconds: float) -> None:
        """For data, after the last call of an optimizer."""
        self._data[1] = (self._data[1] or 0.0) + seconds

    def ended(self, phase: str) -> None:
        """What went on since the last call of an optimizer was this, and no part of a step: the clock of the next one begins here."""
        part, now = Part(0, phase, self._close()), self._now()
        before = (self._went_on or self._ended) if self._calls else self._begun
        self._beside(part, None if before is None else now.since(before))
        if self._calls:
            self._went_on = now
        else:
            self._begun = now
        self._data[1] = None if self._data[1] is None else 0.0

    def finish(self, *, waits: bool = True) -> None:
        """The step is over: it is passed on, and the next one begins.

        Args:
            waits: for its device; otherwise it may have no seconds
        """
        if not self._calls:
            return
        begun, ended = self._begun, self._ended
        seconds = ended.since(begun) if begun is not None and ended is not None and (waits or ended.is_past) else None
        alike = (self._first, self._calls) == (self._began_with, self._usual) or self.number == 1
        self._over(Step(self.number, seconds, self._data[0], tuple(self._parts), alike))
        self._begun, self._went_on = self._went_on or self._ended, None
        self.number += 1
        self._usual, self._began_with = self._calls, self._first
        self._calls, self._first = 0, None
        self._parts, self._micro_batches, self._data[0] = [], 0, None

    def _enter(self, phase: str) -> None:
        self._next.append(Part(self._since if phase == BACKWARD else self._since + 1, phase, self._close()))

    def _belongs_here(self) -> None:
        """What came after the last call of an optimizer is of this step."""
        before = self._micro_batches
        self._parts += [each._replace(micro_batch=each.micro_batch + before) if each.micro_batch else each for each in self._next]
        self._next = []
        self._micro_batches += self._since
        here, there = self._data
        self._data = [there if here is None else here + (there or 0.0), None]

    def _is_inside(self) -> bool:
        """A call that an error ended was never told of its end: its frame is no longer there."""
        if self._inside and self._inside[0][1] is not None:
            frame: FrameType | None = sys._getframe()
            while frame is not None and frame is not self._inside[0][1]:
                frame = frame.f_back
            if frame is None:
                self._inside = []
        return bool(self._inside)
