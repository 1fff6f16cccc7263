"""Memory that runs out in a process that is watched: told where it happens, and taken back where the program went on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch

from fullstep.probing import memory as memories
from fullstep.probing.faults import RanOut, ran_out

_ALIKE = 0.01
"""relative: texts round sizes"""


_OPEN: list[Shortages] = []
"""those that look now; the last one is told"""
_attached = False


class Shortages:
    """Of one process.

    Args:
        write: a line of its file
        at: the step and the phase that go on
    """

    def __init__(self, write: Callable[[dict[str, Any]], None], at: Callable[[], tuple[int, str]]) -> None:
        self._write, self._at = write, at
        self._observed: RanOut | None = None
        """by the allocator, and not yet met with as an error"""
        self._is_open = False
        """one was told, and nothing was made since"""

    def begin(self) -> None:
        """From here on what the allocator gives up is told."""
        _OPEN.append(self)
        with suppress(AttributeError):
            torch.cuda._lazy_call(_attach)  # once the program uses CUDA

    def end(self) -> None:
        """Nothing is told any more."""
        with suppress(ValueError):
            _OPEN.remove(self)

    def observed(self, device: int, asked: int, total: int, _free: int) -> None:
        """CUDA's allocator gave up, whatever becomes of the error."""
        with suppress(Exception):
            self._observed = found = memories.allocator_at_end(device, asked, total)
            self._tell(found, observed=True)

    def noted(self, error: BaseException) -> bool:
        """Whether an error, or one that led to it, is one of memory; each is told once, and not again where the allocator told of it."""
        found = ran_out(error)
        if found is None:
            return False
        if getattr(error, "_fullstep_noted", False):
            return True
        with suppress(AttributeError):
            error._fullstep_noted = True  # type: ignore[attr-defined]
        observed, self._observed = self._observed, None
        if observed is None or not are_alike(observed, found):
            if found.limit_bytes is None and found.allocated_bytes is None:
                found = found._replace(limit_bytes=memories.host_limit_bytes())
            self._tell(found, observed=False)
        return True

    def went_on(self) -> None:
        """A backward pass or an optimizer's call came to its end: whatever ran out before was survived."""
        if self._is_open:
            self._is_open, self._observed = False, None
            self._write({"survived": True})

    def _tell(self, found: RanOut, *, observed: bool) -> None:
        step, phase = self._at()
        self._is_open = True
        self._write({"out_of_memory": found._asdict(), "step": step, "phase": phase, "observed": observed})


def _attach() -> None:
    """Once, as nothing detaches it; in the midst of CUDA's own beginning, which nothing may disturb."""
    global _attached  # noqa: PLW0603
    if not _attached:
        with suppress(Exception):
            torch._C._cuda_attach_out_of_memory_observer(_pass_on)
            _attached = True


def _pass_on(device: int, asked: int, total: int, free: int) -> None:
    if _OPEN:
        _OPEN[-1].observed(device, asked, total, free)


def are_alike(observed: RanOut, said: RanOut) -> bool:
    """Whether what the allocator told of can be what an error says.

    >>> are_alike(RanOut(10_000), RanOut(None)), are_alike(RanOut(10_000), RanOut(10_040)), are_alike(RanOut(10_000), RanOut(64))
    (True, True, False)
    """
    if said.asked_bytes is None or observed.asked_bytes is None:
        return True
    return abs(said.asked_bytes - observed.asked_bytes) <= _ALIKE * observed.asked_bytes
