"""From the stream to the ledger: what is alive at every landmark and instant, and at the peak."""

from __future__ import annotations

import linecache
import re
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from fullstep.lab.trace.worker.stream import OUTSIDE, RELEASE, Stream, TensorRecord
from fullstep.ledger import HOLDINGS, Holdings, Instant, LiveTensor, ModuleShare, Moment
from fullstep.ledger.instants import At

ROUND_BYTES = 512
"""the allocator counts in multiples of this. Source: c10/cuda/CUDACachingAllocator.cpp, kMinBlockSize"""
_SHOWN_TENSORS = 10
_SHOWN_MODULES = 12
_PLACE = {name: index for index, name in enumerate(HOLDINGS)}
_STEADY = 2


class Accounts(NamedTuple):
    """Of the second optimizer step, in bytes as the allocator counts them."""

    instants: tuple[Instant, ...]
    peak_at: At
    peak_bytes: int
    timeline: tuple[Moment, ...]
    largest: tuple[LiveTensor, ...]
    modules: tuple[ModuleShare, ...]
    flops: int


def settle_holdings(stream: Stream) -> None:
    """Gives every tensor that nobody labelled its holding: what forward makes and keeps for backward are activations, the rest works."""
    released: dict[int, int] = {}
    for which, size, segment in zip(stream.which, stream.sizes, stream.segment_of_event, strict=True):
        if size == RELEASE:
            released[which] = segment
    for number, record in enumerate(stream.tensors):
        if record.holding:
            continue
        made, gone = stream.segments[record.segment], released.get(number)
        if made.phase in ("forward", "loss"):
            end = stream.segments[gone] if gone is not None else None
            stays = end is None or (end.step, end.micro_batch) != (made.step, made.micro_batch) or end.phase not in ("forward", "loss")
            record.holding = "activations" if stays else "temporaries"
        else:
            record.holding = "buffers" if made.phase in ("setup", "inputs") else "temporaries"


def account(stream: Stream, micro_batches: int) -> Accounts:
    """Walks the stream once. Tensors in host memory are not counted.

    Args:
        stream: settled, with at least two optimizer steps
        micro_batches: of the worksheet's step; the stream may have fewer of them
    """
    walk = _Walk(stream, micro_batches)
    walk.run()
    peak_at = max(walk.instants, key=lambda at: walk.instants[at].total)
    peak = walk.instants[peak_at]
    order: tuple[At, ...] = ("forward", "loss", "backward", "second_forward", "optimizer_step")
    instants = tuple(
        Instant(at, Holdings(*walk.instants[at].held), _place_words(walk.instants[at].block, stream, walk.instants[at].segment))
        for at in order if at in walk.instants
    )  # fmt: skip
    alive = _alive_at(stream, peak.event)
    return Accounts(
        instants=instants,
        peak_at=peak_at,
        peak_bytes=peak.total,
        timeline=tuple(walk.timeline),
        largest=_largest(alive),
        modules=_modules(alive),
        flops=_flops(stream, micro_batches),
    )


def _flops(stream: Stream, micro_batches: int) -> int:
    """Of the whole step: what the traced micro-batches compute stands for all of them, what the optimizer computes is done once."""
    traced = _traced_micro_batches(stream)
    steady = [(stream.segments[at], flops) for (at, _), flops in stream.flops.items() if stream.segments[at].step == _STEADY]
    repeated = sum(flops for segment, flops in steady if segment.micro_batch)
    return repeated * micro_batches // traced + sum(flops for segment, flops in steady if not segment.micro_batch)


def _traced_micro_batches(stream: Stream) -> int:
    return max(segment.micro_batch for segment in stream.segments)


class _Peak(NamedTuple):
    total: int
    held: tuple[int, ...]
    event: int
    block: int
    segment: int


class _Walk:
    """Running sums by holding, and the largest of each instant and landmark."""

    def __init__(self, stream: Stream, micro_batches: int) -> None:
        self.stream = stream
        self._last = _traced_micro_batches(stream), micro_batches
        """number of the last micro-batch, here and in the worksheet's step"""
        self.held = [0] * len(HOLDINGS)
        self.total = 0
        self.instants: dict[At, _Peak] = {}
        self.timeline: list[Moment] = []
        self._computed: set[tuple[int, int]] = set()
        """landmarks whose operations are counted: one may be entered several times"""

    def run(self) -> None:
        stream = self.stream
        rounded = [-(-record.size_bytes // ROUND_BYTES) * ROUND_BYTES for record in stream.tensors]
        place = [_PLACE.get(record.holding, -1) for record in stream.tensors]
        current: tuple[int, int] | None = None
        top, at = 0, None
        for index, which in enumerate(stream.which):
            holding = place[which]
            if holding < 0:
                continue
            segment, block = stream.segment_of_event[index], stream.blocks[index]
            if (segment, block) != current:
                self._close(current, top)
                self._pass(current, segment, index)
                current, top, at = (segment, block), self.total, _instant_of(stream, segment)
                if at is not None:
                    self._note(at, index - 1, block, segment)
            change = rounded[which] if stream.sizes[index] != RELEASE else -rounded[which]
            self.held[holding] += change
            self.total += change
            if self.total > top:
                top = self.total
                if at is not None:
                    self._note(at, index, block, segment)
        self._close(current, top)
        self._pass(current, len(stream.segments), len(stream))

    def _pass(self, current: tuple[int, int] | None, until: int, index: int) -> None:
        """Segments before ``until`` in which nothing came or went, as a step made in place or on the host."""
        for segment in range(current[0] + 1 if current else 0, until):
            at = _instant_of(self.stream, segment)
            if at is not None:
                self._note(at, index - 1, OUTSIDE, segment)
            self._close((segment, OUTSIDE), self.total)

    def _note(self, at: At, index: int, block: int, segment: int) -> None:
        known = self.instants.get(at)
        if known is None or self.total > known.total:
            self.instants[at] = _Peak(self.total, tuple(self.held), index, block, segment)

    def _close(self, where: tuple[int, int] | None, top: int) -> None:
        if where is None:
            return
        segment = self.stream.segments[where[0]]
        if segment.step != _STEADY:
            return
        block = None if where[1] == OUTSIDE else where[1]
        traced, of_step = self._last
        micro_batch = of_step if segment.micro_batch == traced else segment.micro_batch
        flops = 0 if where in self._computed else self.stream.flops.get(where, 0)
        self._computed.add(where)
        last = self.timeline[-1] if self.timeline else None
        if last is not None and (last.micro_batch, last.phase, last.block) == (micro_batch, segment.phase, block):
            top, flops = max(top, last.allocated_peak_bytes), last.flops + flops
            self.timeline[-1] = last._replace(allocated_peak_bytes=top, allocated_end_bytes=self.total, flops=flops)
            return
        self.timeline.append(Moment(segment.step, micro_batch, segment.phase, block, top, self.total, flops))  # type: ignore[arg-type]


def _instant_of(stream: Stream, segment: int) -> At | None:
    found = stream.segments[segment]
    if found.step != _STEADY:
        return None
    if found.phase in ("forward", "loss") and found.micro_batch > 1:
        return "second_forward"
    return found.phase if found.phase in ("forward", "loss", "backward", "optimizer_step") else None  # type: ignore[return-value]


def _place_words(block: int, stream: Stream, segment: int) -> str:
    if block != OUTSIDE:
        return f"block {block}"
    words = {"forward": "head", "loss": "loss", "backward": "outside the blocks", "optimizer_step": "optimizer"}
    return words[stream.segments[segment].phase]


def _alive_at(stream: Stream, index: int) -> list[TensorRecord]:
    alive: dict[int, TensorRecord] = {}
    for which, size in zip(stream.which[: index + 1], stream.sizes[: index + 1], strict=True):
        if size == RELEASE:
            alive.pop(which, None)
        else:
            alive[which] = stream.tensors[which]
    return [record for record in alive.values() if record.holding in _PLACE]


def _star(module: str) -> str:
    """The name of a module with the number of its block left open.

    >>> _star("model.layers.12.mlp.down_proj")
    'model.layers.*.mlp.down_proj'
    """
    return re.sub(r"\.\d+(?=\.|$)", ".*", module, count=1)


def _largest(alive: list[TensorRecord]) -> tuple[LiveTensor, ...]:
    groups: dict[tuple[object, ...], list[TensorRecord]] = defaultdict(list)
    for record in alive:
        groups[record.holding, record.shape, record.dtype, _star(record.module), record.operation, record.line].append(record)
    ordered = sorted(groups.values(), key=lambda group: -sum(record.size_bytes for record in group))
    return tuple(_live_tensor(group) for group in ordered[:_SHOWN_TENSORS])


def _live_tensor(group: list[TensorRecord]) -> LiveTensor:
    first = group[0]
    return LiveTensor(
        size_bytes=sum(record.size_bytes for record in group),
        copies=len(group),
        holding=first.holding,
        shape=first.shape,
        dtype=first.dtype.removeprefix("torch."),
        module=first.module if len(group) == 1 else _star(first.module),
        operation=first.operation.removeprefix("aten.").removesuffix(".default"),
        line=_line(first.line),
    )


def _line(line: str | tuple[str, int]) -> str:
    if isinstance(line, str):
        return line
    file, number = line
    return f"{Path(file).name}:{number} {linecache.getline(file, number).strip()}" if file else ""


def _modules(alive: list[TensorRecord]) -> tuple[ModuleShare, ...]:
    held: dict[tuple[str, str], int] = defaultdict(int)
    for record in alive:
        held[_star(record.module), record.holding] += record.size_bytes
    ordered = sorted(held.items(), key=lambda entry: -entry[1])
    return tuple(ModuleShare(module, holding, size) for (module, holding), size in ordered[:_SHOWN_MODULES])
