"""What the allocator holds, segment by segment, as torch's memory snapshots list it; and the way back from such a list."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from fullstep.lab.allocator.blocks import Block
from fullstep.lab.allocator.caching import CachingAllocator


class Segment(NamedTuple):
    """One segment, or one unbroken stretch with memory of an expandable one; sizes in bytes."""

    address: int
    size_bytes: int
    stream: int
    is_small: bool
    is_expandable: bool
    blocks: tuple[Block, ...]
    """by address, without gaps"""


class KnownBlock(NamedTuple):
    """A block as a snapshot describes it."""

    size_bytes: int
    requested_bytes: int | None
    """None: free"""


def segments_of(allocator: CachingAllocator) -> list[Segment]:
    """All segments by address (``snapshot``)."""
    found: list[Segment] = []
    for head in allocator.device.heads.values():
        run: list[Block] = []
        block: Block | None = head
        while block is not None:
            if block.mapped:
                run.append(block)
            elif run:
                found.append(_segment(run))
                run = []
            block = block.next
        if run:
            found.append(_segment(run))
    return sorted(found, key=lambda segment: segment.address)


def adopt_segment(allocator: CachingAllocator, address: int, stream: int, is_small: bool, blocks: Iterable[KnownBlock]) -> dict[int, Block]:
    """Start with a segment that ``cudaMalloc`` gave earlier, as a snapshot shows it.

    It counts as reserved, its blocks as allocated, from the start; nothing is added to the calls to CUDA.

    Returns:
        the blocks that are handed out, by address
    """
    pool = allocator.pool(is_small, stream)
    held: dict[int, Block] = {}
    place, before = address, None
    for known in blocks:
        block = Block(place, known.size_bytes, pool)
        if before is None:
            allocator.device.heads[address] = block
        else:
            block.put_after(before)
        if known.requested_bytes is None:
            pool.insert(block, 0)
        else:
            block.requested = known.requested_bytes
            held[place] = block
            allocator.allocated_bytes += known.size_bytes
        place += known.size_bytes
        before = block
    allocator.peak_allocated_bytes = max(allocator.peak_allocated_bytes, allocator.allocated_bytes)
    allocator.device.adopt(place - address)
    return held


def _segment(run: list[Block]) -> Segment:
    first = run[0]
    return Segment(
        address=first.address,
        size_bytes=sum(block.size for block in run),
        stream=first.pool.stream,
        is_small=first.pool.is_small,
        is_expandable=first.area is not None,
        blocks=tuple(run),
    )
