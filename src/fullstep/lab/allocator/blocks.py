"""Blocks of memory, and the pools in which the free ones wait."""

from __future__ import annotations

from bisect import bisect_left, insort

ADDRESS_BITS = 56
"""a block's place in its pool is ``size << ADDRESS_BITS | address``: ordered by size, then address (``BlockComparatorSize``)"""


class Block:
    """A stretch of one segment (``struct Block``): handed out, free, or address space without memory behind it.

    Neighbours in the same segment are linked. Where two merge, the lower one stays; the first of a segment is thus always the
    same object.
    """

    __slots__ = ("address", "area", "born", "free", "mapped", "next", "pool", "previous", "requested", "size")

    def __init__(self, address: int, size: int, pool: Pool, area: Area | None = None) -> None:
        self.address = address
        self.size = size
        """bytes"""
        self.requested = 0
        """bytes that were asked for when it was last handed out"""
        self.pool = pool
        self.area = area
        self.previous: Block | None = None
        self.next: Block | None = None
        self.free = False
        """it waits in its pool; neither handed out nor unmapped"""
        self.mapped = True
        """memory is behind it; only blocks of an expandable segment can be without"""
        self.born = 0
        """the count of searches in the pool when it came in (``gc_count_base``)"""

    @property
    def handed_out(self) -> bool:
        """Somebody holds it."""
        return self.mapped and not self.free

    def put_after(self, before: Block) -> None:
        """Link it in as the right neighbour of ``before``."""
        self.previous = before
        self.next = before.next
        if before.next is not None:
            before.next.previous = self
        before.next = self

    def swallow_next(self) -> None:
        """Become one with the right neighbour, which must have left its pool."""
        gone = self.next
        assert gone is not None
        self.size += gone.size
        self.next = gone.next
        if gone.next is not None:
            gone.next.previous = self


class Area:
    """Address space of one expandable segment (``struct ExpandableSegment``), mapped in pages of ``page_bytes``."""

    __slots__ = ("address", "page_bytes", "size")

    def __init__(self, address: int, size: int, page_bytes: int) -> None:
        self.address = address
        self.size = size
        self.page_bytes = page_bytes

    def page_up(self, address: int) -> int:
        """The first page boundary at or after an address."""
        return self.address + -(-(address - self.address) // self.page_bytes) * self.page_bytes

    def page_down(self, address: int) -> int:
        """The last page boundary at or before an address."""
        return self.address + (address - self.address) // self.page_bytes * self.page_bytes


class Pool:
    """Free blocks of one stream and one kind, small or large (``struct BlockPool`` orders by stream first)."""

    __slots__ = ("blocks", "is_small", "keys", "split_from", "stream", "unmapped", "unsplit_from")

    def __init__(self, *, is_small: bool, stream: int, split_from: int, unsplit_from: int) -> None:
        self.is_small = is_small
        self.stream = stream
        self.split_from = split_from
        """a remainder of at least so many bytes is split off"""
        self.unsplit_from = unsplit_from
        """but not for requests of at least so many bytes"""
        self.keys: list[int] = []
        self.blocks: dict[int, Block] = {}
        self.unmapped: list[Block] = []
        """address space of expandable segments without memory, by address"""

    def insert(self, block: Block, born: int) -> None:
        """Take in a free block. ``born``: the count of searches so far."""
        key = block.size << ADDRESS_BITS | block.address
        insort(self.keys, key)
        self.blocks[key] = block
        block.free = True
        block.born = born

    def remove(self, block: Block) -> None:
        """Let go of a block that is in the pool."""
        key = block.size << ADDRESS_BITS | block.address
        del self.blocks[key]
        del self.keys[bisect_left(self.keys, key)]
        block.free = False

    def at_least(self, size: int) -> int:
        """The position of the smallest free block that is large enough; ``len(keys)`` where there is none."""
        return bisect_left(self.keys, size << ADDRESS_BITS)

    def insert_unmapped(self, block: Block) -> None:
        """Keep address space for later."""
        insort(self.unmapped, block, key=_address)

    def remove_unmapped(self, block: Block) -> None:
        """Let go of address space."""
        del self.unmapped[bisect_left(self.unmapped, block.address, key=_address)]


def _address(block: Block) -> int:
    return block.address
