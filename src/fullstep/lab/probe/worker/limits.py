"""A device with less memory than it has, and what is known when memory ran out."""

from __future__ import annotations

import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from fullstep.probing.faults import RanOut
from fullstep.probing.memory import allocator_at_end
from fullstep.probing.shortage import are_alike


def limit_memory(device: torch.device, limit_bytes: int) -> None:
    """From here on no more can be allocated: on a GPU by its caching allocator, on processors by this process beyond what it has.

    Args:
        device: of this rank
        limit_bytes: on a GPU at most as much as it has
    """
    if device.type == "cuda":
        whole = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(limit_bytes / whole, 1.0), device)
        return
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (_data_bytes() + limit_bytes, hard))


@contextmanager
def unlimited(device: torch.device) -> Iterator[None]:
    """What the probe itself needs on processors is not the program's: the limit stands again afterwards."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if device.type != "cpu" or soft == hard:
        yield
        return
    had = _data_bytes()
    lift_limit(device)
    try:
        yield
    finally:  # what it has taken and the heap has not given back is not the program's either
        resource.setrlimit(resource.RLIMIT_DATA, (soft + max(_data_bytes() - had, 0), hard))


def lift_limit(device: torch.device) -> None:
    """So that a record can be written."""
    if device.type == "cpu":
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


def observe_ends(device: torch.device) -> list[RanOut]:
    """A list that CUDA's allocator adds to where it gives up; empty for good on processors."""
    found: list[RanOut] = []

    def observe(index: int, asked: int, total: int, _free: int) -> None:
        with suppress(Exception):  # it is called in the midst of the allocator
            found.append(allocator_at_end(index, asked, total))

    if device.type == "cuda":
        with suppress(RuntimeError):  # allocators other than torch's own have none
            torch._C._cuda_attach_out_of_memory_observer(observe)
    return found


def what_ran_out(
    said: RanOut, device: torch.device, limit_bytes: int | None, at: tuple[int, str], observed: Sequence[RanOut] = ()
) -> dict[str, Any]:
    """The record of it: where, what was asked for, and how much was there: as the allocator saw it, else as the error says, else as it is.

    Args:
        said: by the error
        device: of this rank
        limit_bytes: that was set; None: all that the device has
        at: step and phase
        observed: by CUDA's allocator, the last one last
    """
    if observed and are_alike(observed[-1], said):
        said = observed[-1]
    allocated, reserved = said.allocated_bytes, said.reserved_bytes
    if device.type == "cuda":
        allocated = torch.cuda.memory_allocated(device) if allocated is None else allocated
        reserved = torch.cuda.memory_reserved(device) if reserved is None else reserved
        limit_bytes = limit_bytes or torch.cuda.get_device_properties(device).total_memory
    step, phase = at
    return {
        "step": step, "phase": phase, "asked_bytes": said.asked_bytes, "allocated_bytes": allocated, "reserved_bytes": reserved,
        "limit_bytes": limit_bytes,
    }  # fmt: skip


def _data_bytes() -> int:
    """That this process has for itself, as RLIMIT_DATA counts it."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) * 1024
    return 0
