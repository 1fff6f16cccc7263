"""Rule by rule, by hand, from torch's ``c10/cuda/CUDACachingAllocator.cpp`` and ``c10/core/AllocatorConfig.cpp``."""

from __future__ import annotations

import pytest

from fullstep.errors import InputError
from fullstep.lab.allocator import AllocatorSettings, CachingAllocator, DeviceOutOfMemoryError

MIB = 1 << 20


def mib(allocator: CachingAllocator) -> float:
    return allocator.reserved_bytes / MIB


def calls(allocator: CachingAllocator) -> list[tuple[str, float]]:
    return [(event.action.removeprefix("segment_"), event.size_bytes / MIB) for event in allocator.segment_events]


@pytest.mark.parametrize(
    ("asked", "segment_mib"),
    [(1, 2), (MIB, 2), (MIB + 1, 20), (10 * MIB - 512, 20), (10 * MIB - 511, 10), (10 * MIB, 10), (10 * MIB + 1, 12), (33 * MIB, 34)],
)
def test_size_of_a_segment(asked: int, segment_mib: int) -> None:
    allocator = CachingAllocator()
    allocator.malloc(asked)
    assert mib(allocator) == segment_mib


def test_small_blocks_share_a_segment() -> None:
    allocator = CachingAllocator()
    blocks = [allocator.malloc(512 * 1024 + 1) for _ in range(4)]
    assert [block.size for block in blocks] == [512 * 1025] * 4
    assert mib(allocator) == 4
    assert blocks[3].address - blocks[2].address != 512 * 1025


def test_a_remainder_of_up_to_one_mib_stays_with_a_large_block_and_counts_as_allocated() -> None:
    allocator = CachingAllocator()
    whole = allocator.malloc(11 * MIB)
    assert (whole.size, allocator.allocated_bytes) == (12 * MIB, 12 * MIB)
    split = allocator.malloc(11 * MIB - 512)
    assert (split.size, allocator.allocated_bytes) == (11 * MIB - 512, 23 * MIB - 512)
    assert mib(allocator) == 24


def test_smallest_block_that_fits_then_lowest_address() -> None:
    allocator = CachingAllocator()
    blocks = [allocator.malloc(size * MIB) for size in (40, 30, 30, 20)]
    for block in blocks:
        allocator.free(block)
    again = allocator.malloc(30 * MIB)
    assert again.address == min(blocks[1].address, blocks[2].address)
    assert mib(allocator) == 120


def test_neighbours_merge() -> None:
    allocator = CachingAllocator()
    left, middle, right = (allocator.malloc(4 * MIB) for _ in range(3))
    allocator.free(left)
    allocator.free(right)
    assert allocator.malloc(8 * MIB).address == right.address
    allocator.free(middle)
    assert allocator.malloc(8 * MIB).address == left.address
    assert mib(allocator) == 20


def test_streams_do_not_share() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.malloc(30 * MIB, 0))
    allocator.malloc(30 * MIB, 7)
    assert mib(allocator) == 60
    allocator.malloc(30 * MIB, 0)
    assert mib(allocator) == 60


def test_pools_do_not_share() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.malloc(30 * MIB))
    allocator.malloc(1)
    assert mib(allocator) == 32


def power2_div(size: int, divisions: int) -> float:
    """Torch's own check of the setting, ``test_allocator_settings`` in its ``test_cuda.py``."""
    power: float = 1
    while power < size:
        power *= 2
    if power == size:
        return power
    step, rounded = power / 2 / divisions, power / 2
    while rounded < size:
        rounded += step
    return rounded


@pytest.mark.parametrize("divisions", [2, 4, 8, 16])
@pytest.mark.parametrize("size", [84 * MIB, 400 * MIB, 64 * MIB, 1200 * 1024, 3 * MIB + 1])
def test_rounding_to_parts_of_a_power_of_two(size: int, divisions: int) -> None:
    settings = AllocatorSettings(roundup_power2_divisions=(divisions,))
    assert CachingAllocator(settings).malloc(size).pool.is_small is False
    assert settings.rounded(size) == power2_div(size, divisions)


def test_divisions_by_size() -> None:
    """``[64:8,128:2,256:4,512:2,1024:4,>:1]``, from torch's test too: what is below the first one counts as it."""
    divisions = (8,) * 7 + (2, 4, 2, 4) + (1,) * 5
    settings = AllocatorSettings(roundup_power2_divisions=divisions)
    assert settings.rounded(84 * MIB) == power2_div(84 * MIB, 8)
    assert settings.rounded(400 * MIB) == power2_div(400 * MIB, 4)
    assert settings.rounded(3 << 40) == 3 << 40
    assert settings.rounded(4096) == 4096, "not above 512 bytes for each division"
    assert settings.conf_text() == (
        "roundup_power2_divisions:[1:8,2:8,4:8,8:8,16:8,32:8,64:8,128:2,256:4,512:2,1024:4,2048:1,4096:1,8192:1,16384:1,32768:1]"
    )


def test_oversize_blocks_are_not_split_and_serve_only_what_is_nearly_as_large() -> None:
    allocator = CachingAllocator(AllocatorSettings(max_split_bytes=40 * MIB))
    block = allocator.malloc(100 * MIB)
    allocator.free(block)
    allocator.malloc(20 * MIB)
    assert mib(allocator) == 120, "a small request gets no oversize block"
    allocator.malloc(80 * MIB)
    assert mib(allocator) == 200, "20 MiB less is too much of a difference"
    near = allocator.malloc(80 * MIB + 512)
    assert (near.address, near.size, mib(allocator)) == (block.address, 100 * MIB, 200)


def test_oversize_blocks_go_first_when_memory_runs_out() -> None:
    settings = AllocatorSettings(max_split_bytes=40 * MIB, capacity_bytes=200 * MIB)
    allocator = CachingAllocator(settings)
    for block in [allocator.malloc(size * MIB) for size in (30, 50, 60)]:
        allocator.free(block)
    allocator.malloc(90 * MIB)
    assert calls(allocator)[3:] == [("free", 60), ("free", 50), ("alloc", 90)], "the largest first, until 90 MiB are free"
    assert allocator.retries == 0
    allocator.malloc(110 * MIB)
    assert calls(allocator)[6:] == [("free", 30), ("alloc", 110)], "no oversize block is left: the whole cache goes"
    assert allocator.retries == 1


def test_one_oversize_block_is_enough() -> None:
    allocator = CachingAllocator(AllocatorSettings(max_split_bytes=40 * MIB, capacity_bytes=250 * MIB))
    for block in [allocator.malloc(size * MIB) for size in (50, 70, 90)]:
        allocator.free(block)
    allocator.malloc(30 * MIB)
    allocator.malloc(48 * MIB)
    assert calls(allocator)[3:] == [("alloc", 30)], "the 48 MiB fit in the 50 MiB"
    allocator.malloc(40 * MIB)
    assert calls(allocator)[4:] == [("free", 70), ("alloc", 40)], "the smallest one that is at least as large"


def test_cache_is_given_back_before_giving_up() -> None:
    allocator = CachingAllocator(AllocatorSettings(capacity_bytes=100 * MIB))
    kept = allocator.malloc(4 * MIB)
    allocator.free(allocator.malloc(40 * MIB))
    allocator.free(allocator.malloc(100, 3))
    allocator.malloc(70 * MIB)
    assert calls(allocator)[3:] == [("free", 40), ("free", 2), ("alloc", 70)]
    assert (allocator.retries, mib(allocator)) == (1, 90)
    with pytest.raises(DeviceOutOfMemoryError, match="tried to allocate 16777217 bytes") as caught:
        allocator.malloc(16 * MIB + 1)
    error = caught.value
    assert (error.requested_bytes, error.segment_bytes) == (16 * MIB + 1, 18 * MIB)
    assert (error.reserved_bytes, error.allocated_bytes) == (90 * MIB, 74 * MIB)
    allocator.free(kept)
    assert allocator.malloc(16 * MIB + 1).address == kept.address


def test_memory_fraction_counts_like_the_end_of_memory() -> None:
    allocator = CachingAllocator(AllocatorSettings(allowed_bytes=50 * MIB))
    allocator.malloc(40 * MIB)
    with pytest.raises(DeviceOutOfMemoryError):
        allocator.malloc(12 * MIB)


@pytest.mark.parametrize(
    ("threshold", "given_back_mib"),
    [
        pytest.param(0.5, [30, 40], id="40 MiB too much: 5 and 3 are at least the mean age of 2.5"),
        pytest.param(0.3, [30, 40, 50, 20], id="80 MiB too much: another round, in which both have the mean age of 1"),
        pytest.param(0.7, [], id="not above the threshold"),
    ],
)
def test_garbage_collection_gives_back_what_waited_longest(threshold: float, given_back_mib: list[int]) -> None:
    """140 MiB of 200 are reserved. Age counts searches of the large pool; the ninth one asks for more than is cached."""
    allocator = CachingAllocator(AllocatorSettings(allowed_bytes=200 * MIB, garbage_collection_threshold=threshold))
    ticking, old, middle, young = (allocator.malloc(size * MIB, stream) for size, stream in ((20, 9), (30, 0), (40, 0), (50, 0)))
    allocator.free(ticking)
    for block in (old, middle, young):
        allocator.free(block)
        for _ in range(2 if block is not young else 0):
            allocator.free(allocator.malloc(20 * MIB, 9))
    allocator.malloc(60 * MIB)
    assert calls(allocator)[4:] == [*(("free", size) for size in given_back_mib), ("alloc", 60)]
    assert allocator.retries == 0


def test_garbage_collection_needs_a_memory_fraction() -> None:
    allocator = CachingAllocator(AllocatorSettings(capacity_bytes=200 * MIB, garbage_collection_threshold=0.1))
    allocator.free(allocator.malloc(100 * MIB))
    allocator.malloc(100 * MIB, 1)
    assert [action for action, _ in calls(allocator)] == ["alloc", "alloc"]


@pytest.mark.parametrize(
    ("settings", "where"),
    [
        ({"max_split_bytes": MIB}, "max_split_bytes: 1048576; allowed: at least 20971520"),
        ({"roundup_power2_divisions": (3,)}, "roundup_power2_divisions"),
        ({"roundup_power2_divisions": (2, 2)}, "roundup_power2_divisions"),
        ({"garbage_collection_threshold": 1.0}, "garbage_collection_threshold: 1.0; allowed: 0 up to"),
        ({"large_segment_bytes": 10 * MIB}, "large_segment_bytes"),
    ],
)
def test_settings_that_torch_refuses(settings: dict[str, object], where: str) -> None:
    with pytest.raises(InputError, match=where):
        AllocatorSettings(**settings)  # type: ignore[arg-type]


def test_settings_as_text() -> None:
    settings = AllocatorSettings(
        expandable_segments=True,
        max_split_bytes=64 * MIB,
        max_non_split_rounding_bytes=32 * MIB,
        roundup_power2_divisions=(8,),
        garbage_collection_threshold=0.8,
        large_segment_bytes=32 * MIB,
    )
    assert settings.conf_text() == (
        "expandable_segments:True,max_split_size_mb:64,max_non_split_rounding_mb:32,roundup_power2_divisions:8,"
        "garbage_collection_threshold:0.8,large_segment_size_mb:32"
    )
    assert AllocatorSettings().conf_text() == ""
