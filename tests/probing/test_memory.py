"""The statistics of an allocator that is played: what is told of each stretch, and what the program itself still finds."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch

from fullstep.probing.memory import AllocatorMemory, _Cuda, raised


class _Allocator:
    """As torch's: current and peak, and peaks that can begin anew."""

    def __init__(self) -> None:
        self.current, self.peak, self.reserved = [0, 0], [0, 0], [0, 0]
        self.told: Callable[[int, dict[str, Any]], dict[str, Any]] = lambda _index, stats: stats
        self.asked: Callable[[int], None] = lambda _index: None

    def allocate(self, size: int, index: int = 0) -> None:
        self.current[index] += size
        self.peak[index] = max(self.peak[index], self.current[index])
        self.reserved[index] = max(self.reserved[index], self.current[index])

    def is_used(self) -> bool:
        return True

    def count(self) -> int:
        return 2

    def stats(self, index: int) -> dict[str, Any]:
        allocated = {"current": self.current[index], "peak": self.peak[index]}
        reserved = {"current": self.reserved[index], "peak": self.reserved[index]}
        return {"allocated_bytes": {"all": allocated}, "reserved_bytes": {"all": reserved}}

    def reset(self, index: int) -> None:
        self.peak[index] = self.current[index]

    def used(self, index: int) -> int:
        return self.reserved[index] + 100

    def replace(self, told: Any, asked: Any) -> Callable[[], None]:
        self.told, self.asked = told, asked
        return lambda: None

    def program_finds(self) -> int:
        return int(self.told(0, self.stats(0))["allocated_bytes"]["all"]["peak"])

    def program_resets(self) -> None:
        self.asked(0)
        self.reset(0)


def test_each_stretch_has_its_own_peak() -> None:
    allocator = _Allocator()
    memory = AllocatorMemory(allocator)
    allocator.allocate(50)
    allocator.allocate(-40)
    assert memory.close() == {"cuda:0": [50, 10, 50, 150]}
    allocator.allocate(20)
    allocator.allocate(-20)
    assert memory.close() == {"cuda:0": [30, 10, 50, 150]}


def test_a_device_that_the_process_does_not_use_is_left_alone() -> None:
    allocator = _Allocator()
    memory = AllocatorMemory(allocator)
    assert memory.close() == {}
    allocator.allocate(7, index=1)
    assert memory.close() == {"cuda:1": [7, 7, 7, 107]}


def test_the_program_finds_the_peak_that_it_would_have_found() -> None:
    allocator = _Allocator()
    memory = AllocatorMemory(allocator)
    allocator.allocate(50)
    allocator.allocate(-40)
    memory.close()
    memory.close()
    assert allocator.program_finds() == 50
    allocator.program_resets()
    assert allocator.program_finds() == 10
    allocator.allocate(5)
    assert allocator.program_finds() == 15


def test_a_peak_that_the_program_makes_begin_anew_is_told_nevertheless() -> None:
    allocator = _Allocator()
    memory = AllocatorMemory(allocator)
    allocator.allocate(50)
    allocator.allocate(-40)
    allocator.program_resets()
    allocator.allocate(3)
    assert memory.close()["cuda:0"][:2] == [50, 13]
    assert memory.close()["cuda:0"][:2] == [13, 13]
    assert allocator.program_finds() == 13


def test_programs_that_ask_whichever_accelerator_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.accelerator has statistics of its own, of the same allocator."""
    accelerator = torch.accelerator
    peak = {"allocated_bytes.all.peak": 5, "allocated_bytes.all.current": 1}
    calls: list[str] = []
    played = {"memory_stats": lambda _=None, /: OrderedDict(peak), "reset_peak_memory_stats": lambda _=None, /: calls.append("its own")}
    for name, play in played.items():
        monkeypatch.setattr(accelerator, name, play)
        monkeypatch.setattr(accelerator.memory, name, play)
    monkeypatch.setattr(accelerator.memory, "_get_device_index", lambda _index, optional: 0)
    before = accelerator.memory_stats, accelerator.reset_peak_memory_stats, torch.cuda.reset_peak_memory_stats
    restore = _Cuda().replace(
        lambda _index, stats: raised(stats, {"allocated_bytes": {"all": {"peak": 50}}}), lambda index: calls.append(f"reset {index}")
    )
    assert accelerator.max_memory_allocated() == 50 and accelerator.memory_allocated() == 1
    accelerator.reset_peak_memory_stats()
    assert calls == ["reset 0", "its own"]
    restore()
    assert (accelerator.memory_stats, accelerator.reset_peak_memory_stats, torch.cuda.reset_peak_memory_stats) == before
