"""Play a stream of allocations and releases through the allocator, and say what it reserved."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from fullstep.errors import Fault, InputError
from fullstep.lab.allocator.blocks import Block
from fullstep.lab.allocator.caching import CachingAllocator, DeviceOutOfMemoryError
from fullstep.lab.allocator.segments import segments_of
from fullstep.lab.allocator.settings import AllocatorSettings

Event: TypeAlias = tuple[int, int, int]
"""Tensor's id, bytes asked for, stream. ``RELEASE`` in place of the bytes gives the tensor back; its id can then be used again."""

RELEASE = -1


class Mark(NamedTuple):
    """What stood on the books right after an event."""

    event_index: int
    reserved_bytes: int
    allocated_bytes: int


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
    marks: tuple[Mark, ...]
    """as asked for; those after the end of memory are missing"""


def replay(events: Sequence[Event], settings: AllocatorSettings | None = None, *, marks: Iterable[int] = ()) -> Replay:
    """Play the events one after the other on an empty card.

    Args:
        events: ``(tensor_id, size_bytes, stream)`` in order; 0 bytes take no memory, as in torch
        settings: of the allocator and the card; None: torch's defaults and a card without end
        marks: indices of events after which the books are noted
    Raises:
        InputError: for an index beyond the stream, a size below -1, an id that is allocated twice or released without being allocated

    >>> stream = [(1, 3 * 2**20, 0), (2, 100, 0), (1, RELEASE, 0)]
    >>> done = replay(stream, marks=[0])
    >>> done.peak_reserved_bytes // 2**20, done.peak_allocated_bytes - 3 * 2**20, done.segments, done.marks[0].reserved_bytes // 2**20
    (22, 512, 2, 20)
    """
    allocator = CachingAllocator(settings)
    stops = sorted(set(marks))
    if stops and not 0 <= stops[0] <= stops[-1] < len(events):
        raise InputError(Fault("replay: marks", f"{stops[0]} to {stops[-1]}", f"indices from 0 to {len(events) - 1}"))
    held: dict[int, Block | None] = {}
    noted: list[Mark] = []
    failure = None
    for start, end in pairwise([0, *(stop + 1 for stop in stops), len(events)]):
        failure = _play(allocator, events, start, end, held)
        if failure is not None:
            break
        if len(noted) < len(stops):
            noted.append(Mark(stops[len(noted)], allocator.reserved_bytes, allocator.allocated_bytes))
    return Replay(
        peak_reserved_bytes=allocator.peak_reserved_bytes,
        peak_allocated_bytes=allocator.peak_allocated_bytes,
        reserved_bytes=allocator.reserved_bytes,
        allocated_bytes=allocator.allocated_bytes,
        segments=len(segments_of(allocator)),
        retries=allocator.retries,
        out_of_memory=failure,
        marks=tuple(noted),
    )


def _play(allocator: CachingAllocator, events: Sequence[Event], start: int, end: int, held: dict[int, Block | None]) -> OutOfMemory | None:
    """Events from ``start`` up to ``end``; the failure where memory ran out."""
    malloc, free = allocator.malloc, allocator.free
    index = start
    try:
        for index, (tensor, size, stream) in enumerate(events[start:end], start):
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
