"""The event stream of a step: every allocation and release, where it happened, and what each tensor is."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

RELEASE = -1
"""in the place of a size"""
OUTSIDE = -1
"""in the place of a block: outside all of them"""


class Segment(NamedTuple):
    """A stretch of the step between two marks."""

    step: int
    """of the optimizer, from 1 on; 0 before the first"""
    micro_batch: int
    """from 1 on; 0 outside forward and backward"""
    phase: str


class TensorRecord:
    """One allocation: a storage from when it is made or filled to when it is let go."""

    __slots__ = ("block", "dtype", "holding", "line", "module", "operation", "segment", "shape", "size_bytes")

    def __init__(
        self, size_bytes: int, shape: tuple[int, ...], dtype: str, operation: str, module: str, line: str | tuple[str, int], segment: int,
        block: int, holding: str = "",
    ) -> None:  # fmt: skip
        self.size_bytes = size_bytes
        self.shape = shape
        self.dtype = dtype
        self.operation = operation
        self.module = module
        self.line = line
        self.segment = segment
        self.block = block
        """that was at work; for what is made outside the blocks, the one that its inputs belong to"""
        self.holding = holding
        """one of the ledger's holdings; empty: follows from when it was made and let go"""


class Stream:
    """Events as parallel lists: they are many."""

    __slots__ = ("blocks", "flops", "segment_of_event", "segments", "sizes", "streams", "tensors", "which")

    def __init__(self) -> None:
        self.which: list[int] = []
        """index into ``tensors``"""
        self.sizes: list[int] = []
        """bytes asked for, or RELEASE"""
        self.streams: list[int] = []
        self.blocks: list[int] = []
        """block at work, or the one that the tensor belongs to, or OUTSIDE"""
        self.segment_of_event: list[int] = []
        self.segments: list[Segment] = []
        self.tensors: list[TensorRecord] = []
        self.flops: dict[tuple[int, int], int] = {}
        """floating-point operations by (segment, block)"""

    def append(self, tensor: int, size_bytes: int, stream: int, block: int, segment: int) -> None:
        self.which.append(tensor)
        self.sizes.append(size_bytes)
        self.streams.append(stream)
        self.blocks.append(block)
        self.segment_of_event.append(segment)

    def events(self) -> list[tuple[int, int, int]]:
        """(tensor, size in bytes or RELEASE, stream), as the allocator's replay takes them."""
        return list(zip(self.which, self.sizes, self.streams, strict=True))

    def __len__(self) -> int:
        return len(self.which)


def settle_blocks(stream: Stream) -> None:
    """Gives every event its block.

    In forward and backward, what happens between two blocks goes with the one before. What happens behind the last one goes with the block
    of the tensor where it concerns most blocks, as when autocast drops its copies of all weights; else with none.
    Elsewhere what happens between two events of one block goes with it.
    """
    index, count = 0, len(stream)
    while index < count:
        segment = stream.segment_of_event[index]
        end = index
        while end < count and stream.segment_of_event[end] == segment:
            end += 1
        inside = [at for at in range(index, end) if stream.blocks[at] != OUTSIDE]
        if inside and stream.segments[segment].phase in ("forward", "backward"):
            _fill(stream, inside[0], inside[-1])
            _settle_rest(stream, inside[-1] + 1, end)
        elif inside:
            for before, after in pairwise(inside):
                if stream.blocks[before] == stream.blocks[after]:
                    _fill(stream, before, after)
        index = end
    for at in range(count):
        if stream.sizes[at] != RELEASE:
            stream.tensors[stream.which[at]].block = stream.blocks[at]


def _fill(stream: Stream, start: int, end: int) -> None:
    current = OUTSIDE
    for at in range(start, end):
        if stream.blocks[at] != OUTSIDE:
            current = stream.blocks[at]
        else:
            stream.blocks[at] = current


def _settle_rest(stream: Stream, start: int, end: int) -> None:
    """Releases behind the last block."""
    home = {stream.which[at]: stream.blocks[at] for at in range(start) if stream.sizes[at] != RELEASE}
    owners = {at: home.get(stream.which[at], OUTSIDE) for at in range(start, end) if stream.sizes[at] == RELEASE}
    blocks = max(stream.blocks[:start], default=0) + 1
    if 2 * len(set(owners.values()) - {OUTSIDE}) > blocks:
        for at, owner in owners.items():
            stream.blocks[at] = owner
