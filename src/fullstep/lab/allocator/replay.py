"""Play a stream of allocations and releases through the allocator, and say what it reserved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from fullstep.errors import Fault, InputError
from fullstep.lab.allocator.blocks import Block
from fullstep.lab.allocator.caching import CachingAllocator, DeviceOutOfMemoryError
from fullstep.lab.allocator.segments import segments_of
from fullstep.lab.allocator.settings import AllocatorSettings

Event: TypeAlias = tuple[int, int, int]
"""Tensor's id, bytes asked for, stream. ``RELEASE`` in place of the bytes gives the tensor back; its id can then be used again."""

RELEASE = -1


class OutOfMemory(NamedTuple):
    """Where the replay ended for want of memory; sizes in bytes, after everything cached had been given back."""

    event_index: int
    requested_bytes: int
    segment_bytes: int
    """what CUDA was asked for and did not have"""
    reserved_bytes: int
    allocated_bytes: int


class Replay(NamedTuple):
    """What the allocator did with a stream; sizes in bytes."""

    peak_reserved_bytes: int
    """``torch.cuda.max_memory_reserved()``"""
    peak_allocated_bytes: int
    """``torch.cuda.max_memory_allocated()``: blocks in use, rounded, with what was too little to be split off"""
    reserved_bytes: int
    """at the end"""
    allocated_bytes: int
    """at the end"""
    segments: int
    """at the end; of an expandable segment every unbroken stretch with memory counts, as in torch's snapshots"""
    retries: int
    """how often all of the cache had to be given back to go on"""
    out_of_memory: OutOfMemory | None


def replay(events: Sequence[Event], settings: AllocatorSettings | None = None) -> Replay:
    """Play the events one after the other on an empty card.

    Args:
        events: ``(tensor_id, size_bytes, stream)`` in order; 0 bytes take no memory, as in torch
        settings: of the allocator and the card; None: torch's defaults and a card without end
    Raises:
        InputError: for a size below -1, an id that is allocated twice or released without being allocated

    >>> done = replay([(1, 3 * 2**20, 0), (2, 100, 0), (1, RELEASE, 0)])
    >>> done.peak_reserved_bytes // 2**20, done.peak_allocated_bytes - 3 * 2**20, done.segments
    (22, 512, 2)
    """
    allocator = CachingAllocator(settings)
    failure = _play(allocator, events)
    return Replay(
        peak_reserved_bytes=allocator.peak_reserved_bytes,
        peak_allocated_bytes=allocator.peak_allocated_bytes,
        reserved_bytes=allocator.reserved_bytes,
        allocated_bytes=allocator.allocated_bytes,
        segments=len(segments_of(allocator)),
        retries=allocator.retries,
        out_of_memory=failure,
    )


def _play(allocator: CachingAllocator, events: Sequence[Event]) -> OutOfMemory | None:
    """All events; the failure where memory ran out."""
    malloc, free = allocator.malloc, allocator.free
    held: dict[int, Block | None] = {}
    index = 0
    try:
        for index, (tensor, size, stream) in enumerate(events):
            if size == RELEASE:
                if tensor not in held:
                    raise _unsound(index, events[index])
                if (block := held.pop(tensor)) is not None:
                    free(block)
            elif tensor in held or size < 0:
                raise _unsound(index, events[index])
            else:
                held[tensor] = malloc(size, stream) if size else None
    except DeviceOutOfMemoryError as full:
        return OutOfMemory(index, full.requested_bytes, full.segment_bytes, full.reserved_bytes, full.allocated_bytes)
    return None


def _unsound(index: int, event: Event) -> InputError:
    tensor, size, _ = event
    if size == RELEASE:
        found = f"tensor {tensor} is released, but not allocated"
    else:
        found = f"tensor {tensor} is allocated with {size} bytes" + (", but is allocated already" if size >= 0 else "")
    return InputError(Fault(f"stream of allocations: event {index}", found, "each id allocated, then released; sizes of at least 0 bytes"))
