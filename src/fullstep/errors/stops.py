"""A signal that ends the program lets its cleanups run: files are taken away, processes that it started are ended."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

BY_SIGNAL = 128
"""plus the number of the signal: the exit code that shells give to a program that a signal ended"""
_ENDING = (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM))
"""not every system has a hangup"""


@contextmanager
def ends_by_signal() -> Iterator[None]:
    """SIGTERM and SIGHUP raise SystemExit where nobody has said otherwise; only the main thread may say so."""

    def stop(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(BY_SIGNAL + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    caught = [number for number in set(_ENDING) if signal.getsignal(number) is signal.SIG_DFL]
    for number in caught:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in caught:
            signal.signal(number, signal.SIG_DFL)


def signal_words(stop: SystemExit | KeyboardInterrupt) -> str:
    """Which signal it was that ended the program.

    >>> signal_words(SystemExit(143)), signal_words(KeyboardInterrupt())
    ('by SIGTERM', 'by SIGINT')
    """
    number = stop.code - BY_SIGNAL if isinstance(stop, SystemExit) and isinstance(stop.code, int) else signal.SIGINT
    return f"by {signal.Signals(number).name}"


class _Door:
    """Where signals that end the program come to: while it is shut they wait."""

    def __init__(self) -> None:
        self.shut = False
        self.before: dict[int, Any] = {}
        """what was done with each of them; empty: nobody asked them to wait"""
        self.waiting: list[int] = []

    def come(self, number: int, frame: FrameType | None) -> None:
        if self.shut:
            self.waiting.append(number)
            return
        self.shut = bool(self.before)  # what it interrupts cleans up undisturbed
        self.pass_on(number, frame)
        self.shut = False

    def pass_on(self, number: int, frame: FrameType | None = None) -> None:
        before = self.before.get(number, signal.SIG_DFL)
        if not callable(before):
            raise SystemExit(BY_SIGNAL + number)
        before(number, frame)

    def pass_on_first(self) -> None:
        """Of those that waited: one is enough."""
        waiting, self.waiting = self.waiting, []
        if waiting:
            self.come(waiting[0], None)


_DOOR = _Door()


@contextmanager
def stops_wait() -> Iterator[None]:
    """What is made in here is taken away again: signals that would end the program wait until then, but for what is :func:`stoppable`.

    Only the main thread is interrupted by signals, so in another one there is nothing to wait for.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    was, outermost = _DOOR.shut, not _DOOR.before
    _DOOR.shut = True
    try:
        if outermost:
            _watch()
        yield
    finally:
        if outermost:
            _unwatch()
        else:
            _DOOR.shut = was
            if not was:
                _DOOR.pass_on_first()


@contextmanager
def stoppable() -> Iterator[None]:
    """Inside of :func:`stops_wait`: here a signal ends the program, and the first one shuts the door for those that come after it."""
    if threading.current_thread() is not threading.main_thread() or not _DOOR.before:
        yield
        return
    _DOOR.shut = False
    try:
        _DOOR.pass_on_first()
        yield
    finally:
        _DOOR.shut = True


def _watch() -> None:
    """Signals that are ignored, or that another program's code looks after, stay as they are."""
    for number in dict.fromkeys((signal.SIGINT, *_ENDING)):
        before = signal.getsignal(number)
        if before not in (signal.SIG_IGN, None):
            _DOOR.before[number] = before
            signal.signal(number, _DOOR.come)


def _unwatch() -> None:
    """Everything has been taken away: who waited comes now."""
    before, waiting = dict(_DOOR.before), _DOOR.waiting[:1]
    try:
        for number, handler in reversed(before.items()):  # one that comes in between ends this early: nothing is left to be put back then
            signal.signal(number, handler)
        for number in waiting:
            _DOOR.pass_on(number)
    finally:
        _DOOR.before, _DOOR.waiting, _DOOR.shut = {}, [], False
