"""A device with less memory than it has, and what is known when memory ran out."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import torch

from fullstep.probing.faults import RanOut


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


def lift_limit(device: torch.device) -> None:
    """So that a record can be written."""
    if device.type == "cpu":
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


def what_ran_out(said: RanOut, device: torch.device, limit_bytes: int | None, at: tuple[int, str]) -> dict[str, Any]:
    """The record of it: where, what was asked for, and how much was there."""
    allocated = reserved = None
    if device.type == "cuda":
        allocated, reserved = torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device)
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
