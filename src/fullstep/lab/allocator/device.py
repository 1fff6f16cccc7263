"""What the allocator got from CUDA, and everything that it ever asked CUDA for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from fullstep.lab.allocator.blocks import Block

SegmentAction = Literal["segment_alloc", "segment_free", "segment_map", "segment_unmap"]

_FIRST_ADDRESS = 0x7_0000_0000
_FIRST_AREA = 1 << 44
_ENDLESS_CARD_BYTES = 1 << 40


class SegmentEvent(NamedTuple):
    """One call of ``cudaMalloc``, ``cudaFree``, ``cuMemMap`` or ``cuMemUnmap``, named as in torch's memory snapshots."""

    action: SegmentAction
    address: int
    size_bytes: int
    stream: int


class Device:
    """Memory of one card as the allocator sees it.

    Args:
        capacity_bytes: what CUDA can give in all; None: without end
        address_of: gives the address of the next segment of so many bytes; None: one after the other
    """

    def __init__(self, capacity_bytes: int | None, address_of: Callable[[int], int] | None) -> None:
        self.capacity_bytes = capacity_bytes
        self.reserved_bytes = 0
        self.peak_reserved_bytes = 0
        self.history: list[SegmentEvent] = []
        self.heads: dict[int, Block] = {}
        """the first block of every segment, by its address"""
        self.segment_address = address_of or self._next_address
        """where ``cudaMalloc`` puts a segment of so many bytes"""
        self._free_address = _FIRST_ADDRESS
        self._free_area = _FIRST_AREA

    def has_room(self, size_bytes: int) -> bool:
        """Whether CUDA would give so many bytes."""
        return self.capacity_bytes is None or self.reserved_bytes + size_bytes <= self.capacity_bytes

    def area_range(self, page_bytes: int, least_bytes: int) -> tuple[int, int]:
        """Address and size of the address space for an expandable segment: 9/8 of the card, in whole pages."""
        card_bytes = _ENDLESS_CARD_BYTES if self.capacity_bytes is None else self.capacity_bytes
        size = -(-max(card_bytes + card_bytes // 8, least_bytes) // page_bytes) * page_bytes
        address = self._free_area
        self._free_area += size
        return address, size

    def note(self, action: SegmentAction, address: int, size_bytes: int, stream: int) -> None:
        """Count memory that came or went and write it down."""
        self.reserved_bytes += size_bytes if action in ("segment_alloc", "segment_map") else -size_bytes
        if self.reserved_bytes > self.peak_reserved_bytes:
            self.peak_reserved_bytes = self.reserved_bytes
        self.history.append(SegmentEvent(action, address, size_bytes, stream))

    def adopt(self, size_bytes: int) -> None:
        """Count memory that was there from the start."""
        self.reserved_bytes += size_bytes
        self.peak_reserved_bytes = max(self.peak_reserved_bytes, self.reserved_bytes)

    def _next_address(self, size_bytes: int) -> int:
        address = self._free_address
        self._free_address += size_bytes
        return address
