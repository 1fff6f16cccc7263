"""All collectives and sizes on one rank, one after another; what it leaves is seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist

from fullstep.lab.link.task import Task
from fullstep.lab.link.worker.collectives import Buffers, Call
from fullstep.lab.ranks.joining import join_group, require_the_same
from fullstep.quantities import format_binary

_SAY_SECONDS = 1.0


class _Stage:
    """Tells what is being timed: at its beginning, and then once a second."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._name, self._said = "", 0.0

    def begin(self, name: str) -> None:
        self._name, self._said = name, time.monotonic()
        self._say(name)

    def at(self, call: int, calls: int) -> None:
        """This many of so many calls are done."""
        if time.monotonic() - self._said > _SAY_SECONDS:
            self._said = time.monotonic()
            self._say(f"{self._name}: {call} of {calls} calls")


def measure(task: Task, say: Callable[[str], None]) -> dict[str, Any]:
    """Times each collective with each size. All ranks must call it.

    Args:
        task: of the front
        say: is told what begins

    Returns:
        the record of this rank: ``samples`` as (collective, size in bytes, seconds of each call), ``missing`` as collectives and what the
        backend says of them, ``device``, ``backend`` and ``versions``
    """
    say("joining the process group")
    device = join_group(task.device, "nccl")
    require_the_same("sizes or iterations", f"{task.sizes_bytes} {task.iterations}")
    stage, buffers = _Stage(say), Buffers(max(task.sizes_bytes), device)
    samples, missing = [], {}
    for collective in task.collectives:
        stage.begin(f"trying out {collective}")
        why = buffers.try_out(collective, min(task.sizes_bytes))
        if why:
            missing[collective] = why
            continue
        for size in task.sizes_bytes:
            stage.begin(f"{collective} of {format_binary(size)}")
            samples.append([collective, size, _timed(buffers.call(collective, size), task, stage)])
    return {
        "rank": dist.get_rank(), "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "backend": dist.get_backend(), "versions": _versions(device), "samples": samples, "missing": missing,
    }  # fmt: skip


def _timed(call: Call, task: Task, stage: _Stage) -> list[float]:
    """Seconds of each call. All begin together; then calls follow one another, as in nccl-tests: each keeps the ranks in step."""
    for _ in range(task.warm_up):
        call()
    dist.barrier()
    return (_on_gpu if task.device == "cuda" else _on_processor)(call, task.iterations, stage)


def _on_processor(call: Call, iterations: int, stage: _Stage) -> list[float]:
    seconds = []
    for number in range(iterations):
        begun = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begun)
        stage.at(number + 1, iterations)
    return seconds


def _on_gpu(call: Call, iterations: int, stage: _Stage) -> list[float]:
    """By events on the stream, so that the host may run ahead: what it takes to start a call only shows where the call is shorter."""
    torch.cuda.synchronize()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(iterations + 1)]
    events[0].record()
    for event in events[1:]:
        call()
        event.record()
    for number, event in enumerate(events):
        event.synchronize()
        stage.at(number, iterations)
    return [begin.elapsed_time(end) / 1000 for begin, end in pairwise(events)]


def _versions(device: torch.device) -> dict[str, str]:
    if device.type != "cuda":
        return {}
    return {"nccl": ".".join(map(str, torch.cuda.nccl.version())), "cuda": str(torch.version.cuda or torch.version.hip)}
