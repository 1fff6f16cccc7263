"""A memory snapshot of the replayed stream, as ``torch.cuda.memory._dump_snapshot`` writes it, for pytorch.org/memory_viz.

Source: torch's ``torch/csrc/cuda/memory_snapshot.cpp`` and ``torch/cuda/memory.py`` (the format), ``torch/utils/viz/MemoryViz.js`` (what
the viewer reads, and that it knows pickle's protocols 2 to 4 only).
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from fullstep.lab.allocator.blocks import Block
from fullstep.lab.allocator.caching import CachingAllocator, DeviceOutOfMemoryError
from fullstep.lab.allocator.replay import RELEASE, Event
from fullstep.lab.allocator.segments import Segment, segments_of
from fullstep.lab.allocator.settings import AllocatorSettings

_PICKLE_PROTOCOL = 4
_DEVICE = 0
_DEFAULT_POOL = (0, 0)


class Frame(NamedTuple):
    """A line of code on the stack of an allocation."""

    filename: str
    line: int
    function: str


Frames: TypeAlias = tuple[Frame, ...]
"""innermost first, as torch records them; the same tuple may stand for many allocations and is then written once"""

Entry: TypeAlias = dict[str, Any]


def write_snapshot(
    path: Path,
    events: Sequence[Event],
    settings: AllocatorSettings | None = None,
    *,
    frames: Sequence[Frames] = (),
    categories: Sequence[str] = (),
) -> None:
    """Replay the events and write what torch would have recorded of them.

    Args:
        path: of the file, replaced where it exists
        events: that :func:`~fullstep.lab.allocator.replay` takes. Where memory runs out, the snapshot ends with that event
        settings: of the allocator and the card
        frames: for each event the stack of the allocation, or an empty tuple; ignored for releases; may be left out as a whole
        categories: for each event what the tensor is, or an empty string; the viewer colours by it; may be left out as a whole
    Raises:
        OSError: if the file can't be written
    """
    snapshot = _Recorder(settings or AllocatorSettings(), frames, categories).record(events)
    path.write_bytes(pickle.dumps(snapshot, protocol=_PICKLE_PROTOCOL))


class _Recorder:
    """Plays the events and writes down each step of the allocator."""

    def __init__(self, settings: AllocatorSettings, frames: Sequence[Frames], categories: Sequence[str]) -> None:
        self.allocator = CachingAllocator(settings)
        self.frames = frames
        self.categories = categories
        self.trace: list[Entry] = []
        self.origin: dict[int, int] = {}
        """index of the event that a block was handed out for, by its address"""
        self.grown_by: dict[int, int] = {}
        """index of the event that a segment was asked for, by its address"""
        self.known: dict[Frames, list[dict[str, str | int]]] = {(): []}
        self.frame: dict[Frame, dict[str, str | int]] = {}

    def record(self, events: Sequence[Event]) -> dict[str, Any]:
        """The whole snapshot."""
        held: dict[int, Block] = {}
        for index, (tensor, size, stream) in enumerate(events):
            if size == RELEASE:
                if tensor in held:
                    self._free(held.pop(tensor), index)
            elif size > 0:
                try:
                    block = self.allocator.malloc(size, stream)
                except DeviceOutOfMemoryError:
                    self._segment_steps(index)
                    self._step("oom", index, index, device_free=self._device_free(), size=size, stream=stream)
                    break
                self._segment_steps(index)
                held[tensor] = block
                self.origin[block.address] = index
                self._step("alloc", index, index, addr=block.address, size=size, stream=stream)
        # The viewer fails on a snapshot that has categories, but not this one.
        self._step("snapshot", len(events), None, addr=0, size=self.allocator.allocated_bytes, stream=0, category="unknown")
        return {
            "segments": [self._segment(segment) for segment in segments_of(self.allocator)],
            "device_traces": [self.trace],
            "allocator_settings": _settings(self.allocator.settings),
            "external_annotations": [],
        }

    def _free(self, block: Block, index: int) -> None:
        address, size, stream = block.address, block.requested, block.pool.stream
        origin = self.origin.pop(address)
        self._step("free_requested", index, origin, addr=address, size=size, stream=stream)
        self.allocator.free(block)
        self._step("free_completed", index, origin, addr=address, size=size, stream=stream)

    def _segment_steps(self, index: int) -> None:
        """Write down the calls to CUDA that the latest request led to."""
        history = self.allocator.segment_events
        for action, address, size_bytes, stream in history:
            if action in ("segment_alloc", "segment_map"):
                self.grown_by[address] = index
            self._step(action, index, self.grown_by.get(address), addr=address, size=size_bytes, stream=stream)
        history.clear()

    def _step(self, action: str, index: int, origin: int | None, **values: int | str) -> None:
        """One entry of the trace. Torch's clock is replaced by the place in the stream."""
        category = self.categories[origin] if self.categories and origin is not None else ""
        entry: Entry = {
            "action": action,
            **values,
            "frames": self._stack(origin),
            "time_us": index,
            "compile_context": "N/A",
            "user_metadata": category,
            "segment_pool_id": _DEFAULT_POOL,
        }
        if category:
            entry["category"] = category
        self.trace.append(entry)

    def _stack(self, origin: int | None) -> list[dict[str, str | int]]:
        """The frames of an event; equal ones are the same object, so that pickle writes them once."""
        frames = self.frames[origin] if self.frames and origin is not None else ()
        found = self.known.get(frames)
        if found is None:
            found = [self.frame.setdefault(one, {"filename": one[0], "line": one[1], "name": one[2]}) for one in frames]
            self.known[frames] = found
        return found

    def _device_free(self) -> int:
        capacity_bytes = self.allocator.settings.capacity_bytes
        return 0 if capacity_bytes is None else capacity_bytes - self.allocator.reserved_bytes

    def _segment(self, segment: Segment) -> dict[str, Any]:
        """An unbroken stretch of memory as torch lists it. Nothing waits for other streams here: active is allocated."""
        in_use = [block for block in segment.blocks if block.handed_out]
        allocated_bytes = sum(block.size for block in in_use)
        return {
            "device": _DEVICE,
            "address": segment.address,
            "total_size": segment.size_bytes,
            "allocated_size": allocated_bytes,
            "active_size": allocated_bytes,
            "requested_size": sum(block.requested for block in in_use),
            "stream": segment.stream,
            "segment_type": "small" if segment.is_small else "large",
            "segment_pool_id": _DEFAULT_POOL,
            "is_expandable": segment.is_expandable,
            "frames": self._stack(self.grown_by.get(segment.address)),
            "blocks": [self._block(block) for block in segment.blocks],
        }

    def _block(self, block: Block) -> dict[str, Any]:
        in_use = block.handed_out
        return {
            "address": block.address,
            "size": block.size,
            "requested_size": block.requested if in_use else 0,
            "state": "active_allocated" if in_use else "inactive",
            "frames": self._stack(self.origin[block.address] if in_use else None),
        }


def _settings(settings: AllocatorSettings) -> dict[str, Any]:
    """As torch writes them: -1 where splitting has no limit, one entry per interval where sizes are rounded to parts of powers of two."""
    divisions = settings.roundup_power2_divisions or (0,)
    intervals = divisions if len(divisions) > 1 else divisions * 16
    return {
        "PYTORCH_CUDA_ALLOC_CONF": settings.conf_text(),
        "max_split_size": -1 if settings.max_split_bytes is None else settings.max_split_bytes,
        "garbage_collection_threshold": settings.garbage_collection_threshold,
        "expandable_segments": settings.expandable_segments,
        "roundup_power2_divisions": {str(1 << place): count for place, count in enumerate(intervals)},
    }
