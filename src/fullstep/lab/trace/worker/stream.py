"""The event stream of a step: every allocation and release, where it happened, and what each tensor is."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby, pairwise
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
    """from 1 on; 0 in the optimizer's step and when gradients are cleared"""
    phase: str


@dataclass(slots=True, eq=False)
class TensorRecord:
    """One allocation: a storage from when it is made or filled to when it is let go."""

    size_bytes: int
    shape: tuple[int, ...]
    dtype: str
    operation: str
    module: str
    line: str | tuple[str, int]
    segment: int
    block: int
    """that was at work; for what is made outside the blocks, the one that its inputs belong to"""
    holding: str = ""
    """one of the ledger's holdings; empty: follows from when it was made and let go"""

    def moved(self, blocks: int) -> TensorRecord:
        """The same of another block, so many further up."""
        if not blocks:
            return self
        module = renumbered(self.module, self.block, self.block + blocks)
        return TensorRecord(
            self.size_bytes, self.shape, self.dtype, self.operation, module, self.line, self.segment, self.block + blocks, self.holding
        )


class Stream:
    """Events as parallel lists: they are many."""

    __slots__ = ("blocks", "flops", "joins", "segment_of_event", "segments", "sizes", "streams", "tensors", "which")

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
        self.joins = ""
        """operation that made one tensor of those of many blocks: its size follows from how many there are; empty: there was none"""

    def append(self, tensor: int, size_bytes: int, stream: int, block: int, segment: int) -> None:
        self.which.append(tensor)
        self.sizes.append(size_bytes)
        self.streams.append(stream)
        self.blocks.append(block)
        self.segment_of_event.append(segment)

    def __len__(self) -> int:
        return len(self.which)


def renumbered(module: str, old: int, new: int) -> str:
    """The same module in another block: the first number in its name that is the old block's.

    >>> renumbered("model.layers.3.mlp", 3, 17)
    'model.layers.17.mlp'
    """
    parts = module.split(".")
    if str(old) in parts:
        parts[parts.index(str(old))] = str(new)
    return ".".join(parts)


def settle_blocks(stream: Stream) -> None:
    """Gives every event its block, and every tensor the one that made it.

    An allocation that no block was at work at goes with the block that its tensor turned out to belong to. In forward, loss and backward,
    what happens between two blocks goes with the one before. Elsewhere, where tensors are worked on one after another or list by list, what
    happens between two allocations of one block goes with it, and every other release with its tensor.
    """
    start = 0
    for segment, events in groupby(stream.segment_of_event):
        end = start + sum(1 for _ in events)
        for at in range(start, end):
            if stream.blocks[at] == OUTSIDE and stream.sizes[at] != RELEASE:
                stream.blocks[at] = stream.tensors[stream.which[at]].block
        if stream.segments[segment].phase in ("forward", "loss", "backward"):
            _settle_pass(stream, start, end)
        else:
            _settle_lists(stream, start, end)
        start = end


def _settle_pass(stream: Stream, start: int, end: int) -> None:
    inside = [at for at in range(start, end) if stream.blocks[at] != OUTSIDE]
    for before, after in pairwise(inside):
        stream.blocks[before + 1 : after] = [stream.blocks[before]] * (after - before - 1)
    for at in range(start, end):
        if stream.sizes[at] != RELEASE:
            stream.tensors[stream.which[at]].block = stream.blocks[at]


def _settle_lists(stream: Stream, start: int, end: int) -> None:
    blocks = stream.blocks
    settled = [at for at in range(start, end) if stream.sizes[at] != RELEASE and blocks[at] != OUTSIDE]
    together = {at for before, after in pairwise(settled) if blocks[before] == blocks[after] for at in range(before + 1, after)}
    work = OUTSIDE
    for at in range(start, end):
        if at in together:
            blocks[at] = work
        elif stream.sizes[at] == RELEASE:
            blocks[at] = stream.tensors[stream.which[at]].block
        else:
            work = blocks[at]
        if stream.sizes[at] != RELEASE:
            stream.tensors[stream.which[at]].block = blocks[at]
