"""The watch over one process: it sees the calls of optimizers and of backward, and writes down what they come to."""

from __future__ import annotations

import functools
import math
import os
import platform
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch.optim import optimizer as optimizers

from fullstep.probing import memory as memories
from fullstep.probing.cycle import Cycle, Part, Step
from fullstep.probing.lines import Lines
from fullstep.probing.shortage import Shortages

_HOST_SECONDS = 1.0
"""between two looks at the most host memory so far: a look takes longer than all the rest"""
_MOST_DIGITS = 9
WATCHING: list[Watch] = []
"""the one over this process, if any"""


class Watch:
    """From :meth:`begin` to :meth:`end`. Nothing that goes wrong in here reaches the program: it is told in the file.

    Args:
        folder: where the file of this process goes; it is there
        steps: after so many of them ``enough`` is called; None: never
        enough: ends the program, or asks it to end
        memory: what counts; None: the allocator of GPUs, once the process uses one
    """

    def __init__(
        self, folder: Path, *, steps: int | None = None, enough: Callable[[], None] = lambda: None, memory: memories.Memory | None = None
    ) -> None:
        self.folder, self._steps, self._enough = folder, steps, enough
        self._memory = memory if memory is not None else _usual_memory()
        self._lines: Lines | None = None
        self._undo: list[Callable[[], None]] = []
        self._broken = self._is_done = False
        self._optimizers: list[str] = []
        self._host_peak_bytes: int | None = None
        self._asked = -math.inf
        self._shortages = Shortages(self._write, lambda: self._cycle.at)
        self._fresh()

    def begin(self) -> None:
        """Looks from here on."""
        self._undo.append(self._memory.stop)
        pre = optimizers.register_optimizer_step_pre_hook(self._before_optimizer)
        post = optimizers.register_optimizer_step_post_hook(self._after_optimizer)
        self._undo += [pre.remove, post.remove]
        self._replace(torch.autograd, "backward", self._watched_backward)
        with suppress(AttributeError):
            self._replace(torch.utils.data.dataloader._BaseDataLoaderIter, "__next__", self._watched_data)
        self._replace(sys, "excepthook", self._watched_errors)
        self._replace(threading, "excepthook", self._watched_errors_of_threads)
        self._shortages.begin()
        WATCHING.append(self)

    def end(self, how: dict[str, Any] | None = None) -> None:
        """Writes the last step and looks no more.

        Args:
            how: a last line that says how the process ended
        """
        if self not in WATCHING:
            return
        WATCHING.remove(self)
        self._shortages.end()
        for undo in reversed(self._undo):
            with suppress(Exception):
                undo()
        self._quietly(self._last_lines, how or {"end": "by itself"})
        self._broken = True  # somebody may hold on to a part of this
        if self._lines is not None:
            self._lines.close()

    def told(self, phase: str) -> None:
        """What went on since the last step was this, and no part of one (evaluation, save)."""
        self._quietly(self._cycle.ended, phase)

    def told_loaded(self) -> None:
        """What went on until now was loading; the first forward pass comes."""
        self._quietly(self._cycle.ended, "load")
        self._cycle.loaded = True

    @property
    def is_done(self) -> bool:
        """As many steps as were asked for have been made."""
        return self._is_done

    def _fresh(self) -> None:
        self._process = os.getpid()
        self._cycle = Cycle(self._memory.close, memories.now, self._over, self._beside)

    def _last_lines(self, how: dict[str, Any]) -> None:
        if self._process != os.getpid():
            return
        self._cycle.finish(waits=False)
        if self._lines is None and "error" not in how:
            return
        if counted := self._memory.finish():
            self._write({"counted": counted})
        self._write({**how, "host": memories.host_peak_bytes()})

    def _replace(self, owner: Any, name: str, around: Callable[..., Any]) -> None:
        before = getattr(owner, name)
        after = around(before)
        setattr(owner, name, after)

        def undo() -> None:
            if getattr(owner, name) is after:  # somebody else may have put another one around it
                setattr(owner, name, before)

        self._undo.append(undo)

    def _before_optimizer(self, optimizer: Any, _given: Any, _named: Any) -> None:
        if torch.compiler.is_compiling() or not self._looks():
            return
        self._quietly(self._note_optimizer, optimizer)
        self._quietly(self._cycle.optimizer_begins, id(optimizer), sys._getframe(1))
        self._stop_if_enough()

    def _after_optimizer(self, _optimizer: Any, _given: Any, _named: Any) -> None:
        if torch.compiler.is_compiling() or not self._looks():
            return
        self._quietly(self._cycle.optimizer_ends)
        self._quietly(self._shortages.went_on)
        self._stop_if_enough()

    def _watched_backward(self, backward: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(backward)
        def watched(*given: Any, **named: Any) -> Any:
            if torch.compiler.is_compiling() or not self._looks():
                return backward(*given, **named)
            self._quietly(self._cycle.backward_begins)
            try:
                found = backward(*given, **named)
            except BaseException as error:
                self._quietly(self._shortages.noted, error)
                self._quietly(functools.partial(self._cycle.backward_ends, failed=True))
                raise
            self._quietly(self._cycle.backward_ends)
            self._quietly(self._shortages.went_on)
            self._stop_if_enough()
            return found

        return watched

    def _watched_data(self, following: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(following)
        def watched(*given: Any, **named: Any) -> Any:
            begun = time.perf_counter()
            found = following(*given, **named)
            self._cycle.waited(time.perf_counter() - begun)
            return found

        return watched

    def _watched_errors(self, hook: Callable[..., Any]) -> Callable[..., Any]:
        def excepthook(kind: type[BaseException], error: BaseException, trace: Any) -> None:
            if not isinstance(error, KeyboardInterrupt):
                self.failed(error)
            hook(kind, error, trace)

        return excepthook

    def _watched_errors_of_threads(self, hook: Callable[..., Any]) -> Callable[..., Any]:
        def excepthook(arguments: Any) -> None:
            if arguments.exc_value is not None:
                self._quietly(self._shortages.noted, arguments.exc_value)
            hook(arguments)

        return excepthook

    def failed(self, error: BaseException) -> None:
        """The program ends by this error."""
        of_memory = False
        with suppress(Exception):
            of_memory = self._shortages.noted(error)
        self.end({"error": f"{type(error).__name__}: {str(error)[:300]}", "of_memory": of_memory, "at": time.time()})

    def _note_optimizer(self, optimizer: Any) -> None:
        name = type(optimizer).__name__
        if self._lines is None and name not in self._optimizers:
            self._optimizers.append(name)

    def _over(self, step: Step) -> None:
        now = time.monotonic()
        if now - self._asked > _HOST_SECONDS:
            self._asked, self._host_peak_bytes = now, memories.host_peak_bytes()
        self._opened().step(step, self._host_peak_bytes)

    def _beside(self, part: Part, seconds: float | None) -> None:
        self._write({"beside": part.phase, "seconds": seconds, "memory": [list(part)] if part.figures else []})

    def _stop_if_enough(self) -> None:
        if self._steps is None or self._cycle.made < self._steps or self._is_done:
            return
        self._is_done = True
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        self._enough()

    def _looks(self) -> bool:
        """Not after a fault of ours. A process that was forked off begins anew."""
        if self._process != os.getpid():
            self._lines = None
            if isinstance(self._memory, memories.CountedMemory):  # its profiler stayed behind
                self._memory = memories.NoMemory()
            self._fresh()
        return not self._broken

    def _quietly(self, do: Callable[..., Any], *given: Any) -> None:
        if self._broken:
            return
        try:
            do(*given)
        except Exception as error:
            self._broken = True
            with suppress(Exception):
                self._write({"fault": f"{type(error).__name__}: {str(error)[:300]}"})

    def _write(self, line: dict[str, Any]) -> None:
        self._opened().write(line)

    def _opened(self) -> Lines:
        if self._lines is None:
            head = _head(self._optimizers)
            self._lines = Lines(self.folder, f"rank{head['rank']}-{self._process}", head)
        return self._lines


def _usual_memory() -> memories.Memory:
    """Whether there is a GPU is not asked: that would begin CUDA, and processes that are forked off later could not use it."""
    built = torch.version.cuda is not None or torch.version.hip is not None
    return memories.AllocatorMemory() if built else memories.NoMemory()


def _head(names: list[str]) -> dict[str, Any]:
    """Who writes, on what."""
    rank = _number_of("RANK", 0)
    ranks = max(_number_of("WORLD_SIZE", 1), rank + 1)  # somebody may have set one without the other
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    devices = {}
    if torch.cuda.is_initialized():
        for index in range(torch.cuda.device_count()):
            device = torch.cuda.get_device_properties(index)
            devices[f"cuda:{index}"] = {"name": device.name, "bytes": device.total_memory}
    return {
        "process": os.getpid(), "rank": rank, "world_size": ranks, "devices": devices, "python": platform.python_version(),
        "torch": str(torch.__version__), "cuda": torch.version.cuda or torch.version.hip, "optimizers": names,
        "threads": torch.get_num_threads(),
    }  # fmt: skip


def _number_of(variable: str, otherwise: int) -> int:
    """From 0 on, as launchers set it."""
    text = os.environ.get(variable, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else otherwise
