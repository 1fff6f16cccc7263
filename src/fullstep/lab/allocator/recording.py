"""Replay of a recorded run of the real allocator: the same requests must lead to the same calls to CUDA.

A recording is what a memory snapshot of torch holds, reduced to counts and sizes (JSON)::

    {"id": "...", "settings": {...},                               # allocator_settings of the snapshot
     "final_segments": [{"address", "total_size", "stream", "segment_type", "is_expandable",
                         "blocks": [{"size", "requested_size", "state"}, ...]}, ...],
     "events": [[action, address, size, stream], ...]}             # device_traces of one device
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from itertools import pairwise
from typing import Any, NamedTuple

from fullstep.errors import Fault, UnsupportedError
from fullstep.lab.allocator.blocks import Block
from fullstep.lab.allocator.caching import CachingAllocator
from fullstep.lab.allocator.release import release_segment
from fullstep.lab.allocator.segments import KnownBlock, adopt_segment
from fullstep.lab.allocator.settings import SMALL_BYTES, SMALL_SEGMENT_BYTES, UNLIMITED, AllocatorSettings

Entry = tuple[str, int, int, int]
"""action, address, bytes, stream"""


class Comparison(NamedTuple):
    """The recorded run beside its replay; sizes in bytes."""

    recorded_segments: tuple[int, ...]
    """sizes of the segments that ``cudaMalloc`` was asked for, in order"""
    replayed_segments: tuple[int, ...]
    recorded_peak_reserved_bytes: int
    replayed_peak_reserved_bytes: int
    recorded_reserved_bytes: int
    """at the end"""
    replayed_reserved_bytes: int
    allocations: int
    same_addresses: int
    """allocations that the replay put at the recorded address"""
    full_releases: int
    """times that the recorded run gave back the very segments, in the same order, that the replay gives back for all of the cache"""
    other_releases: int
    """other runs of ``segment_free``: garbage collection or oversize blocks; the replay follows the recording there"""


class _Segment(NamedTuple):
    size: int
    stream: int
    is_small: bool


class _Past(NamedTuple):
    """What was there before the first event."""

    segments: dict[int, _Segment]
    requested: dict[int, int]
    """bytes asked for, of the blocks in use"""
    sizes: dict[int, int]
    """of those of them that stayed in use to the end, where their size is recorded"""

    def homes(self) -> dict[int, int]:
        """The segment of each block in use, by their addresses."""
        starts = sorted(self.segments)
        return {address: starts[bisect_right(starts, address) - 1] for address in sorted(self.requested)}


def replay_recording(recording: dict[str, Any]) -> Comparison:
    """Rebuild what was there when the recording began, then replay it.

    Raises:
        UnsupportedError: if the recorded run used expandable segments: what of their address space was mapped can't be rebuilt
    """
    settings = _settings(recording["settings"])
    if settings.expandable_segments or any(segment["is_expandable"] for segment in recording["final_segments"]):
        raise UnsupportedError(Fault(f"recording {recording['id']}", "expandable segments", "a run without them"))
    events: list[Entry] = [(action, address, size, stream) for action, address, size, stream in recording["events"]]
    addresses = deque(address for action, address, _, _ in events if action == "segment_alloc")
    beyond = iter(range(1 << 50, 1 << 55, 1 << 40))
    allocator = CachingAllocator(settings, lambda _: addresses.popleft() if addresses else next(beyond))
    held = _start(allocator, recording, events)
    return _compare(allocator, events, held)


def _settings(recorded: dict[str, Any]) -> AllocatorSettings:
    """Of the snapshot's ``allocator_settings``. Garbage collection is left out: the allowed memory is not in a snapshot."""
    split = recorded.get("max_split_size", -1)
    divisions = tuple(recorded.get("roundup_power2_divisions", {}).values())
    return AllocatorSettings(
        expandable_segments=recorded.get("expandable_segments", False),
        max_split_bytes=split if 0 < split < 1 << 62 else None,
        roundup_power2_divisions=divisions if any(divisions) else (),
    )


def _start(allocator: CachingAllocator, recording: dict[str, Any], events: list[Entry]) -> dict[int, Block]:
    """Give the allocator the segments and blocks of the time before the first event; the blocks in use, by address."""
    past = _walk_back(recording, events)
    homes = past.homes()
    sizes = _block_sizes(allocator.settings, past, homes, events)
    inside: dict[int, list[int]] = {start: [] for start in past.segments}
    for address, start in homes.items():
        inside[start].append(address)
    held: dict[int, Block] = {}
    for start, segment in past.segments.items():
        blocks: list[KnownBlock] = []
        place, end = start, start + segment.size
        for address in inside[start]:
            if address > place:
                blocks.append(KnownBlock(address - place, None))
            blocks.append(KnownBlock(sizes[address], past.requested[address]))
            place = address + sizes[address]
        if place < end:
            blocks.append(KnownBlock(end - place, None))
        held |= adopt_segment(allocator, start, segment.stream, segment.is_small, blocks)
    return held


def _walk_back(recording: dict[str, Any], events: list[Entry]) -> _Past:
    """From the end to the start."""
    past = _Past({}, {}, {})
    for segment in recording["final_segments"]:
        address = segment["address"]
        past.segments[address] = _Segment(segment["total_size"], segment["stream"], segment["segment_type"] == "small")
        for block in segment["blocks"]:
            if block["state"].startswith("active"):
                past.requested[address], past.sizes[address] = block["requested_size"], block["size"]
            address += block["size"]
    for action, address, size, stream in reversed(events):
        if action == "alloc":
            past.requested.pop(address, None)
            past.sizes.pop(address, None)
        elif action == "free_completed":
            past.requested[address] = size
        elif action == "segment_alloc":
            past.segments.pop(address, None)
        elif action == "segment_free":
            past.segments[address] = _Segment(size, stream, size == SMALL_SEGMENT_BYTES)
    return past


def _block_sizes(settings: AllocatorSettings, past: _Past, homes: dict[int, int], events: list[Entry]) -> dict[int, int]:
    """Sizes of the blocks in use at the start.

    A block of the large pool can hold up to 1 MiB more than it needs. A free block there is larger than 1 MiB; so whatever is
    less than that behind a block is part of it. Where more is free behind it, the first allocation in that room shows where the
    block ended: free blocks are used from their start. Where nothing shows it before the block is released, it does not matter much
    either, and the block is taken to be as small as can be.
    """
    sizes = dict(past.sizes)
    order = list(homes)
    ends: dict[int, int] = {}
    unclear: dict[int, int] = {}
    for address, following in pairwise([*order, UNLIMITED]):
        segment = past.segments[homes[address]]
        ends[address] = end = min(following, homes[address] + segment.size)
        if address in sizes:
            continue
        sizes[address] = needed = settings.rounded(past.requested[address])
        unsplit = settings.max_split_bytes is not None and needed >= settings.max_split_bytes
        if not segment.is_small and (unsplit or end - address - needed <= SMALL_BYTES):
            sizes[address] = end - address
        elif not segment.is_small:
            unclear[address] = address + needed
    for action, address, _, _ in events:
        if action == "free_completed":
            unclear.pop(address, None)
        elif action == "alloc" and unclear and (place := bisect_right(order, address)):
            owner = order[place - 1]
            if owner in unclear and address < ends[owner] and 0 <= address - unclear.pop(owner) <= SMALL_BYTES:
                sizes[owner] = address - owner
    return sizes


def _compare(allocator: CachingAllocator, events: list[Entry], held: dict[int, Block]) -> Comparison:
    reserved = peak = allocator.reserved_bytes
    sizes: list[int] = []
    counts = {"allocations": 0, "same_addresses": 0, "full_releases": 0, "other_releases": 0}
    freed: list[int] = []
    for action, address, size, stream in events:
        if action == "segment_free":
            freed.append(address)
            reserved -= size
            continue
        if freed:
            counts[_give_back(allocator, freed)] += 1
            freed = []
        if action == "segment_alloc":
            sizes.append(size)
            reserved += size
            peak = max(peak, reserved)
        elif action == "alloc":
            held[address] = block = allocator.malloc(size, stream)
            counts["allocations"] += 1
            counts["same_addresses"] += block.address == address
        elif action == "free_completed":
            allocator.free(held.pop(address))
    if freed:
        counts[_give_back(allocator, freed)] += 1
    return Comparison(
        recorded_segments=tuple(sizes),
        replayed_segments=tuple(event.size_bytes for event in allocator.segment_events if event.action == "segment_alloc"),
        recorded_peak_reserved_bytes=peak,
        replayed_peak_reserved_bytes=allocator.peak_reserved_bytes,
        recorded_reserved_bytes=reserved,
        replayed_reserved_bytes=allocator.reserved_bytes,
        **counts,
    )


def _give_back(allocator: CachingAllocator, freed: list[int]) -> str:
    """Give back the segments at these addresses, all of the cache where they are all of it."""
    heads = allocator.device.heads
    whole = {address for address, head in heads.items() if head.free and head.next is None}
    if whole == set(freed):
        done = len(allocator.segment_events)
        allocator.empty_cache()
        same = [event.address for event in allocator.segment_events[done:]] == freed
        return "full_releases" if same else "other_releases"
    for address in freed:
        if address in whole:
            release_segment(allocator.device, heads[address])
    return "other_releases"
