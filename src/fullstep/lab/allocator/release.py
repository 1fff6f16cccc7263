"""How cached memory goes back to CUDA: garbage collection, oversize blocks, everything.

Source: torch's ``c10/cuda/CUDACachingAllocator.cpp``; the functions are named below.
"""

from __future__ import annotations

from collections.abc import Iterable

from fullstep.lab.allocator.blocks import Block, Pool
from fullstep.lab.allocator.device import Device
from fullstep.lab.allocator.expandable import unmap_pages


def release_cached(device: Device, large: Iterable[Pool], small: Iterable[Pool], searches: int) -> None:
    """All segments that nobody holds a part of, and the free whole pages of expandable ones (``release_cached_blocks``).

    Args:
        large, small: the pools of all streams; the large ones go first, in each kind the lowest stream first
        searches: the count of searches so far
    """
    for pools in (large, small):
        to_unmap: list[Block] = []
        for pool in sorted(pools, key=_stream):
            for key in pool.keys.copy():
                block = pool.blocks[key]
                if block.area is not None:
                    to_unmap.append(block)
                elif is_whole(block):
                    release_segment(device, block)
        for block in to_unmap:
            unmap_pages(device, block, searches)


def release_oversize(device: Device, pool: Pool, size: int, max_split_bytes: int) -> bool:
    """Blocks that are too large to be split, until as much is free as is needed (``release_available_cached_blocks``).

    One that is large enough, the smallest of them; else the largest ones together. Returns whether that was enough. What was given
    back before it turned out not to be enough stays given back, as in torch.
    """
    needed = max(size, max_split_bytes)
    position = pool.at_least(needed)
    if position < len(pool.keys):
        block = pool.blocks[pool.keys[position]]
        if block.area is None:
            release_segment(device, block)
            return True
    released = 0
    while released < needed and position > 0:
        position -= 1
        block = pool.blocks[pool.keys[position]]
        if block.size < max_split_bytes:
            break
        if block.area is None:
            released += block.size
            release_segment(device, block)
    return released >= needed


def collect_garbage(device: Device, large: Iterable[Pool], threshold_bytes: int, searches: int) -> None:
    """Segments of the large pool that waited at least as long as the average one, round by round, until what is reserved is back
    at the threshold (``garbage_collect_cached_blocks``). Age is counted in searches of the large pool.

    The round that reaches the threshold is finished. Free pages of expandable segments are not collected.
    """
    target = device.reserved_bytes - threshold_bytes
    if target <= 0:
        return
    pools = sorted(large, key=_stream)
    total_age = 0
    count = 0
    for pool in pools:
        for block in pool.blocks.values():
            if is_whole(block):
                total_age += searches - block.born
                count += 1
    reclaimed = 0
    freed_one = True
    while reclaimed < target and freed_one and count > 0:
        limit = total_age / count
        freed_one = False
        for pool in pools:
            for key in pool.keys.copy():
                block = pool.blocks[key]
                age = searches - block.born
                if is_whole(block) and block.area is None and age >= limit:
                    freed_one = True
                    reclaimed += block.size
                    total_age -= age
                    count -= 1
                    release_segment(device, block)


def is_whole(block: Block) -> bool:
    """It is not a part of a split segment (``!is_split()``)."""
    return block.previous is None and block.next is None


def release_segment(device: Device, block: Block) -> None:
    """``cudaFree`` of a segment (``release_block``)."""
    block.pool.remove(block)
    del device.heads[block.address]
    device.note("segment_free", block.address, block.size, block.pool.stream)


def _stream(pool: Pool) -> int:
    return pool.stream
