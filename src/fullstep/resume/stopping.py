"""A signal that the machine will be taken away: all ranks agree to stop after the same step."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterable
from types import FrameType
from typing import Any, NamedTuple

import torch
import torch.distributed as dist


class Notice(NamedTuple):
    """What is known once somebody asked to stop."""

    seconds_left: float
    """until the machine is gone, by what was stated"""
    save_seconds: float | None
    """what a save took before; None: there was none"""
    under_way_seconds: float | None = None
    """for which another one is written already, and has to end before; None: none is"""
    stated_seconds: float | None = None
    """from the signal on, as ``notice_seconds`` says; None: not told"""

    @property
    def needed_seconds(self) -> float | None:
        """For the rest of the one under way, and a save after it; None: not known."""
        if self.save_seconds is None:
            return None
        rest = 0.0 if self.under_way_seconds is None else max(0.0, self.save_seconds - self.under_way_seconds)
        return rest + self.save_seconds

    @property
    def suffices(self) -> bool | None:
        """None: not known."""
        return None if self.needed_seconds is None else self.needed_seconds <= self.seconds_left

    def __str__(self) -> str:
        left = f"{self.seconds_left:.0f} s until the machine is taken away"
        if self.needed_seconds is None:
            return f"{left}; no save has been timed yet"
        took = f"{left}, and a save took {self.save_seconds:.1f} s"
        if self.under_way_seconds is not None:
            took += f", with one under way for {self.under_way_seconds:.1f} s"
        if self.suffices:
            return took
        stated = "" if self.stated_seconds is None else f"; notice_seconds = {self.stated_seconds:g}, state what your provider gives"
        return f"{took}: it will not end in time{stated}"


class StopSignal:
    """Catches signals and remembers when the first one came. Nothing else happens until somebody asks.

    Args:
        signals: to catch; those that came before are passed on to nobody
        notice_seconds: from the signal until the machine is gone
        group: all ranks, of gloo, and used for nothing that another thread does
    """

    def __init__(self, signals: Iterable[signal.Signals], notice_seconds: float, group: dist.ProcessGroup | None) -> None:
        self._notice_seconds, self._group = notice_seconds, group
        self._came: float | None = None
        self._agreed = False
        self._before: dict[signal.Signals, Any] = {}
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._catch) for number in signals}

    def _catch(self, _number: int, _frame: FrameType | None) -> None:
        self.ask()

    def ask(self) -> None:
        """As if a signal had come."""
        if self._came is None:
            self._came = time.monotonic()

    @property
    def agreed(self) -> bool:
        """All ranks know."""
        return self._agreed

    def agree(self) -> bool:
        """Whether any rank was asked to stop. All ranks must call it after the same step."""
        asked = self._came is not None
        if self._group is not None and not self._agreed:
            any_asked = torch.tensor([int(asked)])
            dist.all_reduce(any_asked, dist.ReduceOp.MAX, group=self._group)
            asked = bool(any_asked.item())
        if asked:
            self.ask()
            self._agreed = True
        return self._agreed

    def notice(self, save_seconds: float | None, under_way_seconds: float | None = None) -> Notice | None:
        """How much time is left; None: nobody asked."""
        if self._came is None:
            return None
        return Notice(self._came + self._notice_seconds - time.monotonic(), save_seconds, under_way_seconds, self._notice_seconds)

    def close(self) -> None:
        """Signals do again what they did."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}
