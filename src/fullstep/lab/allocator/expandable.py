"""Expandable segments: one stretch of address space per pool and stream, in which pages get memory when they are needed.

Source: torch's ``c10/cuda/CUDACachingAllocator.cpp``, note "Expandable Segments" and the functions named below.
"""

from __future__ import annotations

from fullstep.lab.allocator.blocks import Area, Block, Pool
from fullstep.lab.allocator.device import Device
from fullstep.lab.allocator.settings import SMALL_SEGMENT_BYTES


def expandable_size(block: Block) -> int:
    """The size up to which a free block can grow: for the best fit it counts as that large (``get_free_block``)."""
    after = block.next
    return block.size + (after.size if after is not None and not after.mapped else 0)


def grown_block(device: Device, pool: Pool, size: int, large_page_bytes: int, born: int) -> Block | None:
    """A block of at least ``size`` bytes, taken out of the pool, or None where CUDA has no memory left.

    What was mapped before memory ran out stays mapped, as in torch (``try_allocate_expandable_block``).
    """
    block = _lowest_room(device, pool, size, large_page_bytes)
    if not block.mapped:
        mapped = _map(device, block, min(block.size, size), born)
        if mapped is None:
            return None
        block = mapped
    while block.size < size:
        after = block.next
        assert after is not None and not after.mapped
        mapped = _map(device, after, min(size - block.size, after.size), born)
        if mapped is None:
            return None
        block = mapped
    pool.remove(block)
    return block


def unmap_pages(device: Device, block: Block, born: int) -> None:
    """Give back the whole pages of a free block, and the address space with the last of them (``unmap_block``)."""
    area, pool = block.area, block.pool
    assert area is not None
    begin, end = area.page_up(block.address), area.page_down(block.address + block.size)
    if begin >= end:
        return
    pool.remove(block)
    behind = block.address + block.size - end
    if begin > block.address:
        block.size = begin - block.address
        pool.insert(block, born)
        unmapped = Block(begin, end - begin, pool, area)
        unmapped.put_after(block)
    else:
        unmapped = block
        unmapped.size = end - begin
    if behind:
        rest = Block(end, behind, pool, area)
        rest.put_after(unmapped)
        pool.insert(rest, born)
    unmapped.mapped = False
    device.note("segment_unmap", begin, end - begin, pool.stream)
    _join_unmapped(device, unmapped)


def _join_unmapped(device: Device, block: Block) -> None:
    """Join freshly unmapped space with its unmapped neighbours; drop the area if nothing in it is mapped any more."""
    pool, before, after = block.pool, block.previous, block.next
    if after is not None and not after.mapped:
        pool.remove_unmapped(after)
        block.swallow_next()
    if before is not None and not before.mapped:
        before.swallow_next()
        block = before
    else:
        pool.insert_unmapped(block)
    if block.previous is None and block.next is None:
        pool.remove_unmapped(block)
        del device.heads[block.address]


def _lowest_room(device: Device, pool: Pool, size: int, large_page_bytes: int) -> Block:
    """The lowest address from which on ``size`` bytes of free or unmapped space follow (``find_expandable_block``)."""
    for unmapped in pool.unmapped:
        before = unmapped.previous
        first = before if before is not None and before.free else unmapped
        if _has_room(first, size):
            return first
    page_bytes = SMALL_SEGMENT_BYTES if pool.is_small else large_page_bytes
    address, area_bytes = device.area_range(page_bytes, size)
    block = Block(address, area_bytes, pool, Area(address, area_bytes, page_bytes))
    block.mapped = False
    pool.insert_unmapped(block)
    device.heads[address] = block
    return block


def _has_room(first: Block, size: int) -> bool:
    found, block = 0, first
    while found < size and not block.handed_out:
        found += block.size
        if block.next is None:
            break
        block = block.next
    return found >= size


def _map(device: Device, block: Block, size: int, born: int) -> Block | None:
    """Put memory behind the pages from the block's start that hold ``size`` bytes; the free block that results (``map_block``)."""
    area, pool = block.area, block.pool
    assert area is not None and not block.mapped
    mapped_bytes = area.page_up(block.address + size) - block.address
    if not device.has_room(mapped_bytes):
        return None
    pool.remove_unmapped(block)
    if mapped_bytes < block.size:
        rest = Block(block.address + mapped_bytes, block.size - mapped_bytes, pool, area)
        rest.mapped = False
        block.size = mapped_bytes
        rest.put_after(block)
        pool.insert_unmapped(rest)
    block.mapped = True
    device.note("segment_map", block.address, mapped_bytes, pool.stream)
    after, before = block.next, block.previous
    if after is not None and after.free:
        pool.remove(after)
        block.swallow_next()
    if before is not None and before.free:
        pool.remove(before)
        before.swallow_next()
        block = before
    pool.insert(block, born)
    return block
