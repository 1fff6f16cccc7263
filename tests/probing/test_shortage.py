"""Memory that runs out, played: what CUDA's allocator says of it, what its error says, and what is made afterwards."""

from __future__ import annotations

from typing import Any

import pytest

from fullstep.probing import memory as memories
from fullstep.probing import shortage
from fullstep.probing.faults import RanOut, ran_out_in
from fullstep.probing.shortage import Shortages

pytestmark = pytest.mark.real_classes
_SAID = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB of which 1.17 GiB is free. Including"
    " non-PyTorch memory, this process has 77.93 GiB memory in use. 70.00 GiB allowed; Of the allocated memory 66.01 GiB is allocated by"
    " PyTorch, and 1.26 GiB is reserved by PyTorch but unallocated."
)
_GIB = 2**30


class OutOfMemoryError(RuntimeError):
    """As torch names it."""


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    monkeypatch.setattr(memories, "allocator_at_end", lambda _device, asked, total: RanOut(asked, 70_880_000_001, 72_230_000_001, total))
    return []


def _shortages(lines: list[dict[str, Any]]) -> Shortages:
    return Shortages(lines.append, lambda: (3, "forward"))


def test_what_the_error_says() -> None:
    found = ran_out_in(_SAID)
    assert found == RanOut(2 * _GIB, round(66.01 * _GIB), round(66.01 * _GIB) + round(1.26 * _GIB), 70 * _GIB)


def test_sizes_that_nobody_has() -> None:
    assert ran_out_in("Tried to allocate 1.50 EiB") == RanOut(3 * 2**59)
    for text in ("Tried to allocate 999999999.00 EiB", "Tried to allocate 1.2.3 GiB", f"Tried to allocate {'9' * 500} GiB"):
        assert ran_out_in(text) == RanOut(None)


def test_the_allocator_tells_it_to_the_byte_and_its_error_adds_nothing(lines: list[dict[str, Any]]) -> None:
    shortages = _shortages(lines)
    shortages.observed(0, 2 * _GIB, 80 * _GIB, 0)
    assert shortages.noted(OutOfMemoryError(_SAID))
    told = {"asked_bytes": 2 * _GIB, "allocated_bytes": 70_880_000_001, "reserved_bytes": 72_230_000_001, "limit_bytes": 80 * _GIB}
    assert lines == [{"out_of_memory": told, "step": 3, "phase": "forward", "observed": True}]


def test_an_error_of_another_size_is_another_one(lines: list[dict[str, Any]]) -> None:
    """A library may try and go on without the memory, and the host's may run out thereafter."""
    shortages = _shortages(lines)
    shortages.observed(0, 2 * _GIB, 80 * _GIB, 0)
    error = RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 64 bytes.")
    assert shortages.noted(error) and shortages.noted(error)  # and each is told once
    assert [line["out_of_memory"]["asked_bytes"] for line in lines] == [2 * _GIB, 64]


def test_the_program_goes_on(lines: list[dict[str, Any]]) -> None:
    shortages = _shortages(lines)
    shortages.went_on()
    assert lines == []
    shortages.noted(MemoryError())
    shortages.went_on()
    shortages.went_on()
    assert not shortages.noted(ValueError("of its own")) and lines[1:] == [{"survived": True}]


def test_the_last_one_that_looks_is_told_and_nobody_afterwards(lines: list[dict[str, Any]]) -> None:
    """The allocator goes on calling what was attached once."""
    others: list[dict[str, Any]] = []
    first, second = _shortages(others), _shortages(lines)
    first.begin()
    second.begin()
    try:
        shortage._pass_on(0, 1, 2, 0)
    finally:
        second.end()
        first.end()
    shortage._pass_on(0, 1, 2, 0)
    assert len(lines) == 1 and others == []
