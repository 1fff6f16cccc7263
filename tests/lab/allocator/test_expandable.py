"""Expandable segments by hand, from the note "Expandable Segments" in torch's ``c10/cuda/CUDACachingAllocator.cpp`` and the code."""

from __future__ import annotations

import pytest

from fullstep.lab.allocator import AllocatorSettings, CachingAllocator, DeviceOutOfMemoryError, segments_of

MIB = 1 << 20


def expandable(capacity_mib: int | None = None) -> CachingAllocator:
    return CachingAllocator(
        AllocatorSettings(expandable_segments=True, capacity_bytes=None if capacity_mib is None else capacity_mib * MIB)
    )


def calls(allocator: CachingAllocator) -> list[tuple[str, float]]:
    return [(event.action.removeprefix("segment_"), event.size_bytes / MIB) for event in allocator.segment_events]


@pytest.mark.parametrize(("asked", "mapped_mib"), [(1, 2), (MIB, 2), (MIB + 1, 20), (20 * MIB, 20), (20 * MIB + 1, 40), (99 * MIB, 100)])
def test_pages(asked: int, mapped_mib: int) -> None:
    allocator = expandable()
    allocator.malloc(asked)
    assert calls(allocator) == [("map", mapped_mib)]


def test_a_segment_grows_at_its_end() -> None:
    """30 MiB in 2 pages leave 10; 25 more need 1 page; 5 MiB are left."""
    allocator = expandable()
    first = allocator.malloc(30 * MIB)
    second = allocator.malloc(25 * MIB)
    assert second.address == first.address + 30 * MIB
    assert calls(allocator) == [("map", 40), ("map", 20)]
    allocator.malloc(5 * MIB)
    assert calls(allocator) == [("map", 40), ("map", 20)]
    assert [(segment.size_bytes, len(segment.blocks)) for segment in segments_of(allocator)] == [(60 * MIB, 3)]


def test_remainders_are_split_to_512_bytes() -> None:
    allocator = expandable()
    block = allocator.malloc(20 * MIB - 512)
    assert block.size == 20 * MIB - 512
    assert allocator.allocated_bytes == 20 * MIB - 512


def test_the_end_that_can_grow_is_used_last() -> None:
    """Best fit would take the 10 MiB at the end; as it can grow it counts as endless, and the 12 MiB in the middle are taken."""
    allocator = expandable()
    hole = allocator.malloc(12 * MIB)
    allocator.malloc(18 * MIB)
    allocator.free(hole)
    assert allocator.malloc(9 * MIB).address == hole.address
    assert calls(allocator) == [("map", 20), ("map", 20)]


def test_streams_and_pools_have_their_own() -> None:
    allocator = expandable()
    allocator.malloc(MIB + 1, 0)
    allocator.malloc(MIB + 1, 5)
    allocator.malloc(1, 0)
    allocator.malloc(1, 5)
    assert calls(allocator) == [("map", 20), ("map", 20), ("map", 2), ("map", 2)]
    assert len(segments_of(allocator)) == 4


def test_only_whole_free_pages_are_given_back() -> None:
    """A at 0 to 15, B to 70, C to 75 MiB: without B the pages from 20 to 60 are free, and the one from 80 MiB on was never there."""
    allocator = expandable()
    _, middle, _ = (allocator.malloc(size * MIB) for size in (15, 55, 5))
    allocator.free(middle)
    allocator.empty_cache()
    assert calls(allocator) == [("map", 20), ("map", 60), ("unmap", 40)]
    assert [segment.size_bytes // MIB for segment in segments_of(allocator)] == [20, 20]
    assert allocator.reserved_bytes == 40 * MIB


def test_gaps_are_filled_before_the_end_grows() -> None:
    allocator = expandable()
    first, middle, last = (allocator.malloc(size * MIB) for size in (15, 55, 5))
    allocator.free(middle)
    allocator.empty_cache()
    refill = allocator.malloc(50 * MIB)
    assert refill.address == middle.address, "the 5 free MiB before the gap are used too"
    assert calls(allocator)[3:] == [("map", 40)]
    assert (refill.address - first.address, last.address - refill.address) == (15 * MIB, 55 * MIB)
    assert len(segments_of(allocator)) == 1


def test_too_small_a_gap_is_passed_over() -> None:
    allocator = expandable()
    _, middle, last = (allocator.malloc(size * MIB) for size in (15, 55, 5))
    allocator.free(middle)
    allocator.empty_cache()
    assert allocator.malloc(60 * MIB).address == last.address + 5 * MIB


def test_an_empty_segment_goes_altogether() -> None:
    allocator = expandable()
    for block in [allocator.malloc(30 * MIB), allocator.malloc(100)]:
        allocator.free(block)
    allocator.empty_cache()
    assert (allocator.reserved_bytes, segments_of(allocator)) == (0, [])
    allocator.malloc(30 * MIB)
    assert calls(allocator) == [("map", 40), ("map", 2), ("unmap", 40), ("unmap", 2), ("map", 40)]


def test_free_pages_of_another_stream_are_given_back_when_memory_runs_out() -> None:
    allocator = expandable(100)
    allocator.free(allocator.malloc(60 * MIB, 1))
    allocator.malloc(80 * MIB, 0)
    assert calls(allocator) == [("map", 60), ("unmap", 60), ("map", 80)]
    assert allocator.retries == 1


def test_no_room() -> None:
    """2 of 3 pages hold 30 MiB; the 10 left and the one page more are not enough for 31 MiB."""
    allocator = expandable(60)
    allocator.malloc(30 * MIB)
    with pytest.raises(DeviceOutOfMemoryError) as caught:
        allocator.malloc(31 * MIB)
    assert (caught.value.reserved_bytes, caught.value.segment_bytes) == (40 * MIB, 32 * MIB)
    allocator.malloc(30 * MIB)
    assert allocator.reserved_bytes == 60 * MIB


def test_pages_mapped_before_memory_ran_out_stay_until_the_cache_is_given_back() -> None:
    """Gap, 20 MiB freed just now, gap: the first gap is filled, for the second there is no page left on the card."""
    allocator = expandable(120)
    blocks = [allocator.malloc(20 * MIB) for _ in range(5)]
    allocator.free(blocks[1])
    allocator.free(blocks[3])
    allocator.empty_cache()
    allocator.malloc(40 * MIB, 4)
    allocator.free(blocks[2])
    with pytest.raises(DeviceOutOfMemoryError) as caught:
        allocator.malloc(60 * MIB)
    assert calls(allocator)[5:] == [("unmap", 20), ("unmap", 20), ("map", 40), ("map", 20), ("unmap", 40)]
    assert caught.value.reserved_bytes == 80 * MIB


def test_beyond_one_tebibyte_without_a_capacity() -> None:
    allocator = expandable()
    allocator.malloc(3 << 40)
    assert allocator.reserved_bytes >= 3 << 40
