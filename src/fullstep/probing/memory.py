"""What the devices of this process hold from one call to the next, and at what time they have come there."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from fullstep.probing.cycle import Figures, Moment
from fullstep.probing.faults import RanOut

_ALLOCATED, _RESERVED = "allocated_bytes", "reserved_bytes"


class Instant:
    """Of the host, and of the stream that the optimizer ran on."""

    def __init__(self) -> None:
        self.host = time.perf_counter()
        self.event: Any = None
        if _is_cuda_used():
            self.event = torch.cuda.Event(enable_timing=True)
            self.event.record()

    def since(self, earlier: Any) -> float:
        """Seconds. Waits for this instant: the device has the next step's work queued meanwhile."""
        if self.event is None or earlier.event is None:
            return self.host - float(earlier.host)
        self.event.synchronize()
        return float(earlier.event.elapsed_time(self.event)) / 1e3

    @property
    def is_past(self) -> bool:
        """The device has come here."""
        return self.event is None or bool(self.event.query())


def now() -> Moment:
    """The present instant."""
    return Instant()


def _is_cuda_used() -> bool:
    """Not while a graph is captured: it would take up the event."""
    return bool(torch.cuda.is_initialized()) and not torch.cuda.is_current_stream_capturing()


class Memory(ABC):
    """A counter of stretches."""

    @abstractmethod
    def close(self) -> Figures:
        """Of each device [allocated peak, allocated at the end, reserved peak, used by everybody] in bytes; the next stretch begins."""

    def finish(self) -> list[list[int]]:
        """Figures that are only known at the end; empty: there are none."""
        return []

    def stop(self) -> None:  # noqa: B027 - most have nothing to undo
        """Everything is as it was before."""


class NoMemory(Memory):
    """Of processors nothing is counted unless asked for: it takes a profiler."""

    def close(self) -> Figures:
        return {}


class AllocatorMemory(Memory):
    """The statistics of CUDA's allocator. Their peaks have to begin anew for each stretch; the program still finds its own ones.

    Args:
        api: stands for ``torch.cuda.memory`` and torch's binding
    """

    def __init__(self, api: Any = None) -> None:
        self._api = api if api is not None else _Cuda()
        self._hidden: dict[int, dict[str, Any]] = {}
        """peaks that the program would have found, had they not begun anew"""
        self._cut: dict[int, tuple[int, int]] = {}
        """peaks of the stretch under way before the program itself made them begin anew"""
        self._restore = self._api.replace(self._told, self._reset)

    def close(self) -> Figures:
        if not self._api.is_used():
            return {}
        found: Figures = {}
        for index in range(self._api.count()):
            stats = self._api.stats(index)
            reserved = stats[_RESERVED]["all"]
            if not reserved["peak"]:
                continue
            cut = self._cut.pop(index, (0, 0))
            allocated = stats[_ALLOCATED]["all"]
            peaks = max(allocated["peak"], cut[0]), max(reserved["peak"], cut[1])
            found[f"cuda:{index}"] = [peaks[0], allocated["current"], peaks[1], self._api.used(index)]
            self._hidden[index] = raised(stats, self._hidden.get(index, {}))
            self._api.reset(index)
        return found

    def stop(self) -> None:
        self._restore()

    def _told(self, index: int, stats: dict[str, Any]) -> dict[str, Any]:
        """What the program is told in place of the allocator's own statistics."""
        return raised(stats, self._hidden.get(index, {}))

    def _reset(self, index: int) -> None:
        """The program makes its peaks begin anew."""
        stats = self._api.stats(index)
        cut = self._cut.get(index, (0, 0))
        if stats:
            self._cut[index] = max(stats[_ALLOCATED]["all"]["peak"], cut[0]), max(stats[_RESERVED]["all"]["peak"], cut[1])
        self._hidden.pop(index, None)


def raised(stats: dict[str, Any], hidden: dict[str, Any]) -> dict[str, Any]:
    """Statistics whose peaks are at least those of others.

    >>> raised({"a": {"all": {"current": 1, "peak": 2}}}, {"a": {"all": {"current": 5, "peak": 7}}})
    {'a': {'all': {'current': 1, 'peak': 7}}}
    """
    found: dict[str, Any] = {}
    for name, value in stats.items():
        other = hidden.get(name)
        if isinstance(value, dict):
            found[name] = raised(value, other if isinstance(other, dict) else {})
        else:
            found[name] = max(value, other) if name == "peak" and other is not None else value
    return found


class _Cuda:
    """torch's own."""

    def is_used(self) -> bool:
        return _is_cuda_used()

    def count(self) -> int:
        return int(torch.cuda.device_count())

    def stats(self, index: int) -> dict[str, Any]:
        found: dict[str, Any] = torch._C._cuda_memoryStats(index)
        return found

    def reset(self, index: int) -> None:
        torch._C._cuda_resetPeakMemoryStats(index)

    def used(self, index: int) -> int | None:
        with suppress(RuntimeError):
            free, total = torch.cuda.mem_get_info(index)
            return int(total - free)
        return None

    def replace(self, told: Callable[..., dict[str, Any]], reset: Callable[[int], None]) -> Callable[[], None]:
        """Puts itself between the program and the statistics. Returns what undoes that."""
        module, cuda = torch.cuda.memory, torch.cuda
        stats, own = module.memory_stats_as_nested_dict, module.reset_peak_memory_stats

        def memory_stats_as_nested_dict(device: Any = None) -> dict[str, Any]:
            found: dict[str, Any] = stats(device)
            return told(module._get_device_index(device, optional=True), found) if found else found

        def reset_peak_memory_stats(device: Any = None) -> None:
            if torch.cuda.is_initialized():
                reset(module._get_device_index(device, optional=True))
            own(device)

        def restore() -> None:
            restore_accelerator()
            for place in (module, cuda):
                place.memory_stats_as_nested_dict, place.reset_peak_memory_stats = stats, own

        for place in (module, cuda):
            place.memory_stats_as_nested_dict = memory_stats_as_nested_dict
            place.reset_peak_memory_stats = reset_peak_memory_stats
        restore_accelerator = _replace_accelerator(told, reset)
        return restore


def _replace_accelerator(told: Callable[..., dict[str, Any]], reset: Callable[[int], None]) -> Callable[[], None]:
    """The same for ``torch.accelerator``, by which programs ask that do not care whose device it is. Returns what undoes that."""
    module = getattr(getattr(torch, "accelerator", None), "memory", None)
    if module is None:  # torch before 2.9
        return lambda: None
    stats, own = module.memory_stats, module.reset_peak_memory_stats

    def memory_stats(device_index: Any = None, /) -> dict[str, Any]:
        found = stats(device_index)
        return found and type(found)(_flat(told(module._get_device_index(device_index, optional=True), _nested(found))))

    def reset_peak_memory_stats(device_index: Any = None, /) -> None:
        if stats(device_index):
            reset(module._get_device_index(device_index, optional=True))
        own(device_index)

    def put(new: Any, other: Any) -> None:
        for place in (module, torch.accelerator):
            place.memory_stats, place.reset_peak_memory_stats = new, other

    put(memory_stats, reset_peak_memory_stats)
    return lambda: put(stats, own)


def _nested(flat: dict[str, Any]) -> dict[str, Any]:
    """
    >>> _nested({"a.all.peak": 1, "b": 2})
    {'a': {'all': {'peak': 1}}, 'b': 2}
    """
    found: dict[str, Any] = {}
    for name, value in flat.items():
        *outer, last = name.split(".")
        table = found
        for part in outer:
            table = table.setdefault(part, {})
        table[last] = value
    return found


def _flat(nested: dict[str, Any], before: str = "") -> list[tuple[str, Any]]:
    """
    >>> _flat({"a": {"all": {"peak": 1}}, "b": 2})
    [('a.all.peak', 1), ('b', 2)]
    """
    return [
        pair
        for name, value in nested.items()
        for pair in (_flat(value, f"{before}{name}.") if isinstance(value, dict) else [(before + name, value)])
    ]


def allocator_at_end(device: int, asked: int, total: int) -> RanOut:
    """What CUDA's allocator holds where it gives up, before the error has given anything back.

    Args:
        device: its index
        asked: by the request that it refuses [bytes]
        total: what it may take of the device [bytes]
    """
    stats = torch._C._cuda_memoryStats(device)
    return RanOut(asked, stats[_ALLOCATED]["all"]["current"], stats[_RESERVED]["all"]["current"], total)


class CountedMemory(Memory):
    """A profiler's account of what torch asks host memory for; it is added up at the end.

    Args:
        counter: see :mod:`fullstep.lab.probe.worker.counters`
    """

    def __init__(self, counter: Any) -> None:
        self._counter, self._count = counter, 0
        counter.start()
        counter.mark(0, 0, "counted")

    def close(self) -> Figures:
        self._count += 1
        self._counter.mark(self._count, 0, "counted")
        return {"cpu": [self._count - 1]}

    def finish(self) -> list[list[int]]:
        return [[each.allocated_peak_bytes, each.allocated_end_bytes] for each in self._counter.finish()]


def host_limit_bytes() -> int | None:
    """What this process may take of host memory, where that was set."""
    with suppress(ImportError, OSError):
        import resource  # noqa: PLC0415 - not every system has it

        limits = [resource.getrlimit(which)[0] for which in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
        return min((limit for limit in limits if limit != resource.RLIM_INFINITY), default=None)
    return None


def host_peak_bytes() -> int | None:
    """The most memory that this process has held [bytes]; None: the system does not say."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return None
