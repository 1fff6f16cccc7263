"""Replay of a stream: peaks, the end of memory, unsound streams."""

from __future__ import annotations

import pytest

from fullstep.errors import InputError
from fullstep.lab.allocator import RELEASE, AllocatorSettings, Event, replay

MIB = 1 << 20
STREAM: list[Event] = [(1, 30 * MIB, 0), (2, 500, 0), (1, RELEASE, 0), (1, 12 * MIB, 0), (3, 0, 0), (3, RELEASE, 0), (4, 12 * MIB, 2)]


def test_peaks_and_end() -> None:
    done = replay(STREAM)
    assert done.peak_reserved_bytes == done.reserved_bytes == (30 + 2 + 12) * MIB
    assert done.peak_allocated_bytes == 30 * MIB + 512
    assert done.allocated_bytes == 24 * MIB + 512
    assert (done.segments, done.retries, done.out_of_memory) == (3, 0, None)


def test_nothing() -> None:
    done = replay([])
    assert (done.peak_reserved_bytes, done.segments) == (0, 0)


def test_expandable_segments_reserve_less_where_sizes_vary() -> None:
    """Each round needs 1 MiB more. Segments of their own size are never right again; one that grows is."""
    growing: list[Event] = []
    for size in range(30, 60):
        growing += [(0, size * MIB, 0), (0, RELEASE, 0)]
    assert replay(growing).peak_reserved_bytes == sum(size + size % 2 for size in range(30, 60) if size % 2 or size == 30) * MIB
    assert replay(growing, AllocatorSettings(expandable_segments=True)).peak_reserved_bytes == 60 * MIB


def test_where_memory_ran_out() -> None:
    done = replay(STREAM, AllocatorSettings(capacity_bytes=40 * MIB))
    assert done.out_of_memory == (6, 12 * MIB, 12 * MIB, 32 * MIB, 12 * MIB + 512)
    assert done.retries == 1


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([(1, 5, 0), (1, 6, 0)], "event 1: tensor 1 is allocated with 6 bytes, but is allocated already"),
        ([(1, 5, 0), (2, RELEASE, 0)], "event 1: tensor 2 is released, but not allocated"),
        ([(1, -2, 0)], "event 0: tensor 1 is allocated with -2 bytes; allowed"),
    ],
)
def test_unsound_streams(events: list[Event], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replay(events)
