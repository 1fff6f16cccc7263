"""What a GPU does in a step, by its profiler: computing, communicating, and communicating while nothing is computed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch.autograd.profiler_util import EventList
from torch.profiler import ProfilerActivity, profile

_COMMUNICATES = "nccl"
"""in the name of a kernel"""
Interval = tuple[float, float]


class Overlap(NamedTuple):
    """Of one step, in seconds. Kernels that run at once count once."""

    compute_seconds: float
    communication_seconds: float
    exposed_seconds: float
    step_seconds: float


def profiled_steps(step: Callable[[], Any], count: int) -> list[Overlap]:
    """So many steps on the current GPU, each profiled by itself.

    Args:
        step: returns when the GPU has done all of it
        count: of steps
    """
    found = []
    for _ in range(count):
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:  # whose own beginning and end take longer than many a step
            begun = time.perf_counter()
            step()
            seconds = time.perf_counter() - begun
        found.append(overlap_of(_kernels(profiler.events()), seconds))
    return found


def overlap_of(kernels: Iterable[tuple[str, float, float]], step_seconds: float) -> Overlap:
    """Of kernels by name, beginning and end [s].

    >>> overlap_of([("gemm", 0.0, 2.0), ("ncclDevKernel_AllGather", 1.0, 3.0), ("gemm", 1.5, 2.5)], 4.0)
    Overlap(compute_seconds=2.5, communication_seconds=2.0, exposed_seconds=0.5, step_seconds=4.0)
    """
    computing: list[Interval] = []
    communicating: list[Interval] = []
    for name, begin, end in kernels:
        (communicating if _COMMUNICATES in name.lower() else computing).append((begin, end))
    compute, communication = _length(computing), _length(communicating)
    exposed = _length([*computing, *communicating]) - compute
    return Overlap(compute, communication, exposed, step_seconds)


def _length(intervals: list[Interval]) -> float:
    """Of their union."""
    total, reached = 0.0, float("-inf")
    for begin, end in sorted(intervals):
        total += max(end - max(begin, reached), 0.0)
        reached = max(reached, end)
    return total


def _kernels(events: EventList | None) -> Iterable[tuple[str, float, float]]:
    for event in events or ():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            yield event.name, event.time_range.start / 1e6, event.time_range.end / 1e6
