"""Replication against programs that were written out in full: a short one repeated is the long one, event by event."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fullstep.lab.trace.worker.replicate import NotAlikeError, Repetition, replicate
from fullstep.lab.trace.worker.stream import OUTSIDE, RELEASE, Segment, Stream, TensorRecord, settle_blocks


class Kind(NamedTuple):
    """What blocks of one kind allocate, in bytes; parameters by the size of their gradient."""

    parameters: tuple[int, ...]
    temporaries: tuple[int, ...]
    saved: tuple[int, ...]
    output: int


@dataclass(frozen=True)
class Model:
    """Blocks of their own kinds first, then ``periods`` times those of ``period``, then the first ``rest`` of it once more."""

    first: tuple[Kind, ...]
    period: tuple[Kind, ...]
    rest: int
    gathers: bool = False
    """a block allocates for the one that comes next what that one releases, as sharded layouts do"""
    copies: bool = False
    """of all parameters, released in any order at the end of forward, as autocast has them"""
    masks: bool = False
    """one for each kind of block, which the first block of that kind is the last to use in backward"""
    optimizer: tuple[bool, ...] = ()
    """operations on lists of all parameters: whether their results are released in ascending order"""

    def blocks(self, periods: int) -> list[Kind]:
        return [*self.first, *self.period * periods, *self.period[: self.rest]]

    @property
    def kept(self) -> Repetition:
        """What is repeated of it, as model.with_fewer chooses it, but how often."""
        return Repetition(len(self.first) + 2 * len(self.period), len(self.period), 0)


@dataclass
class Program:
    """Writes a stream as the recorder would: events between blocks belong to none until they are settled."""

    model: Model
    periods: int
    seed: int = 0
    stream: Stream = field(default_factory=Stream)
    block: int = OUTSIDE

    def written(self) -> Stream:
        self.kinds = self.model.blocks(self.periods)
        self.mark(0, "setup")
        self.weights = [self.per_parameter(self.block_at(at), "weights") for at in range(len(self.kinds))]
        self.states: list[list[int]] = []
        for step in (1, 2):
            self.one_step(step)
        settle_blocks(self.stream)
        return self.stream

    # one step

    def one_step(self, step: int) -> None:
        self.mark(step, "forward")
        saved, outputs, copies = self.forward()
        self.mark(step, "loss")
        logits = self.make(4096)
        random.Random(self.seed + step).shuffle(copies)
        self.drop(copies)
        self.mark(step, "backward")
        gradients = self.backward(saved, outputs, logits)
        self.mark(step, "optimizer_step")
        self.optimizer()
        self.mark(step, "gradients_cleared")
        self.drop(which for each in gradients for which in each)

    def forward(self) -> tuple[list[list[int]], list[int], list[int]]:
        saved, copies, outputs = [], [], [self.make(512)]
        self.masks = {kind: self.make(8192) for kind in dict.fromkeys(self.kinds)} if self.model.masks else {}
        gathered = self.make(2048) if self.model.gathers else -1
        for at, kind in enumerate(self.kinds):
            self.block_at(at)
            ahead = self.make(2048) if self.model.gathers and at + 1 < len(self.kinds) else -1
            if self.model.copies:
                copies += self.per_parameter(at, "copy")
            here = []
            for temporary, kept in zip(kind.temporaries, kind.saved, strict=True):
                inside = self.make(temporary)
                here.append(self.make(kept))
                self.drop([inside])
            outputs.append(self.make(kind.output))
            self.stream.flops[self.segment, at] = kind.output
            self.drop([gathered])
            saved.append(here)
            gathered = ahead
            self.block_at(OUTSIDE)
            self.drop(outputs[-2:-1])
            outputs[-2] = -1
        return saved, outputs, copies

    def backward(self, saved: list[list[int]], outputs: list[int], logits: int) -> list[list[int]]:
        gradients: list[list[int]] = [[] for _ in self.kinds]
        self.drop([*outputs, logits])
        flowing = self.make(512)
        for at in reversed(range(len(self.kinds))):
            self.block_at(at)
            below = self.make(512)
            gradients[at] = self.per_parameter(at, "gradient")
            self.drop([*reversed(saved[at]), flowing])
            if self.kinds.index(self.kinds[at]) == at and self.model.masks:
                self.drop([self.masks.pop(self.kinds[at])])
            flowing = below
        self.block_at(OUTSIDE)
        self.drop([flowing])
        return gradients

    def optimizer(self) -> None:
        if not self.states:
            self.states = [self.per_parameter(at, "state") for at in range(len(self.kinds))]
        for ascending in self.model.optimizer:
            results = [which for at in range(len(self.kinds)) for which in self.per_parameter(self.block_at(at), "result")]
            self.drop(results if ascending else reversed(results))
        self.block_at(OUTSIDE)

    # events

    def block_at(self, block: int) -> int:
        self.block = block
        return block

    def mark(self, step: int, phase: str) -> None:
        self.block = OUTSIDE
        self.segment = len(self.stream.segments)
        self.stream.segments.append(Segment(step, 0, phase))

    def per_parameter(self, block: int, operation: str) -> list[int]:
        self.block = block
        return [self.make(size, operation) for size in self.kinds[block].parameters]

    def make(self, size_bytes: int, operation: str = "made") -> int:
        which = len(self.stream.tensors)
        module = "" if self.block == OUTSIDE else f"model.layers.{self.block}.mlp"
        self.stream.tensors.append(TensorRecord(size_bytes, (size_bytes,), "uint8", operation, module, ("", 0), self.segment, self.block))
        self.stream.append(which, size_bytes, 0, self.block, self.segment)
        return which

    def drop(self, tensors: Iterable[int]) -> None:
        spreads = self.stream.segments[self.segment].phase in ("optimizer_step", "gradients_cleared")
        for which in tensors:
            if which >= 0:
                self.stream.append(which, RELEASE, 0, self.stream.tensors[which].block if spreads else self.block, self.segment)


def meaning(stream: Stream) -> list[tuple[object, ...]]:
    """Events by what they do to what; of releases that follow each other outside of the blocks the order means nothing."""
    born: dict[int, int] = {}
    found: list[tuple[object, ...]] = []
    loose: list[tuple[object, ...]] = []
    for at, (which, size, on, block, segment) in enumerate(
        zip(stream.which, stream.sizes, stream.streams, stream.blocks, stream.segment_of_event, strict=True)
    ):
        record = stream.tensors[which]
        if size != RELEASE or block != OUTSIDE:
            found += sorted(loose)
            loose = []
        if size == RELEASE:
            event = (segment, block, born.pop(which), record.size_bytes)
            (loose if block == OUTSIDE else found).append(event)
        else:
            born[which] = at
            found.append((segment, block, size, on, record.module, record.operation, record.block, record.segment))
    return [*found, *sorted(loose), *sorted(born.values())]


SIZES = st.integers(1, 40).map(lambda count: 512 * count)
KINDS = st.builds(
    lambda parameters, inside, output: Kind(tuple(parameters), tuple(a for a, _ in inside), tuple(b for _, b in inside), output),
    st.lists(SIZES, min_size=1, max_size=4), st.lists(st.tuples(SIZES, SIZES), max_size=4), SIZES,
)  # fmt: skip
MODELS = st.builds(
    lambda first, period, rest, *habits: Model(first, period, rest % len(period), *habits),
    st.lists(KINDS, max_size=2).map(tuple), st.lists(KINDS, min_size=1, max_size=4).map(tuple), st.integers(0, 3),
    st.booleans(), st.booleans(), st.booleans(),
    st.lists(st.booleans(), max_size=3).map(tuple),
)  # fmt: skip
PLAIN = Model((), (Kind((1024, 512), (512,), (2048,), 1536),), 0, gathers=True, copies=True, masks=True, optimizer=(True, False))


@settings(max_examples=60, deadline=None)
@given(MODELS, st.integers(0, 6), st.integers(0, 2**31))
def test_the_repeated_stream_is_that_of_the_whole_program(model: Model, times: int, seed: int) -> None:
    short = Program(model, 5, seed).written()
    whole = Program(model, 5 + times, seed + 17).written()
    found = replicate(short, model.kept._replace(times=times))
    assert meaning(found) == meaning(whole)
    assert found.flops == whole.flops
    assert found.segments == whole.segments


@settings(max_examples=40, deadline=None)
@given(MODELS, st.data())
def test_one_size_that_differs_is_found(model: Model, data: st.DataObject) -> None:
    short = Program(model, 5).written()
    first, length, _ = model.kept
    compared = range(first - length, first + 2 * length)
    events = [at for at, size in enumerate(short.sizes) if size != RELEASE and short.blocks[at] in compared]
    at = data.draw(st.sampled_from(events))
    short.sizes[at] += 512
    with pytest.raises(NotAlikeError, match=f"block {short.blocks[at]}"):
        replicate(short, model.kept._replace(times=3))


@settings(max_examples=40, deadline=None)
@given(MODELS, st.data())
def test_a_release_that_is_missing_in_one_block_is_found(model: Model, data: st.DataObject) -> None:
    short = Program(model, 5).written()
    first, length, _ = model.kept
    compared = range(first - length, first + 2 * length)
    loss = [at for at, segment in enumerate(short.segment_of_event) if short.segments[segment].phase == "loss"]
    inside = [at for at, block in enumerate(short.blocks) if block in compared]
    together = [at for at in loss if short.tensors[short.which[at]].block in compared]
    events = [at for at in (*inside, *together) if short.sizes[at] == RELEASE]
    at = data.draw(st.sampled_from(events))
    for column in (short.which, short.sizes, short.streams, short.blocks, short.segment_of_event):
        del column[at]
    with pytest.raises(NotAlikeError):
        replicate(short, model.kept._replace(times=3))


def _swapped(stream: Stream, block: int) -> None:
    """The two saved tensors of a block are released in the other order: as many events, of the same sizes."""
    events = [
        at for at, size in enumerate(stream.sizes)
        if size == RELEASE and stream.blocks[at] == block and stream.segments[stream.segment_of_event[at]] == Segment(1, 0, "backward")
    ]  # fmt: skip
    one, two = events[0], events[1]
    stream.which[one], stream.which[two] = stream.which[two], stream.which[one]


@pytest.mark.parametrize("block", [1, 2, 3])
def test_another_order_in_one_block_is_found(block: int) -> None:
    model = Model((), (Kind((512,), (512, 512), (1024, 1024), 512),), 0)
    stream = Program(model, 5).written()
    _swapped(stream, block)
    with pytest.raises(NotAlikeError, match="backward of step 1"):
        replicate(stream, Repetition(2, 1, 4))


def test_what_happens_between_two_blocks_and_belongs_to_none_is_found() -> None:
    stream = Program(PLAIN, 5).written()
    segment = stream.segments.index(Segment(1, 0, "optimizer_step"))
    at = next(at for at, block in enumerate(stream.blocks) if block == 2 and stream.segment_of_event[at] == segment)
    stream.tensors.append(TensorRecord(512, (1,), "uint8", "odd", "", ("", 0), segment, OUTSIDE))
    columns = (stream.which, stream.sizes, stream.streams, stream.blocks, stream.segment_of_event)
    for column, value in zip(columns, (len(stream.tensors) - 1, 512, 0, OUTSIDE, segment), strict=True):
        column.insert(at, value)
    with pytest.raises(NotAlikeError, match=r"optimizer step of step 1, .*between two blocks"):
        replicate(stream, PLAIN.kept._replace(times=2))


def test_a_tensor_that_a_block_releases_and_none_of_its_like_made_is_found() -> None:
    """Every block releases one of five that were made before all of them: there would have to be more of those."""
    stream = Stream()
    stream.segments = [Segment(1, 0, "setup"), Segment(1, 0, "forward")]
    for which in range(5):
        stream.tensors.append(TensorRecord(512, (1,), "uint8", "made", "", ("", 0), 0, OUTSIDE))
        stream.append(which, 512, 0, OUTSIDE, 0)
    for which in range(5):
        stream.append(which, RELEASE, 0, which, 1)
    with pytest.raises(NotAlikeError, match="forward of step 1"):
        replicate(stream, Repetition(2, 1, 4))


def test_a_block_that_computes_more_is_found() -> None:
    stream = Program(PLAIN, 5).written()
    stream.flops[stream.segments.index(Segment(2, 0, "forward")), 3] += 1
    with pytest.raises(NotAlikeError, match="compute more"):
        replicate(stream, PLAIN.kept._replace(times=2))


def test_a_tensor_made_of_those_of_many_blocks_is_found() -> None:
    """Its size follows from how many blocks there are: the routers' logits, joined for the loss that balances experts."""
    stream = Program(PLAIN, 5).written()
    stream.joins = "aten.cat.default in model"
    with pytest.raises(NotAlikeError, match="joins tensors of many"):
        replicate(stream, PLAIN.kept._replace(times=2))


def test_nothing_to_repeat_is_the_stream_itself() -> None:
    stream = Program(PLAIN, 3).written()
    assert replicate(stream, Repetition(0, 1, 0)) is stream


def test_modules_are_those_of_the_block() -> None:
    found = replicate(Program(PLAIN, 5).written(), PLAIN.kept._replace(times=121))
    assert {record.module for record in found.tensors if record.block == 97} == {"model.layers.97.mlp"}
    assert max(record.block for record in found.tensors) == 125


def test_the_largest_models_take_less_than_a_second() -> None:
    """126 blocks, as Llama-3.1-405B has them, with two steps of more than 500 events for each."""
    kind = Kind((1024,) * 9, (512,) * 50, (2048,) * 50, 1536)
    model = Model((), (kind,), 0, optimizer=(True, False))
    short = Program(model, 5).written()
    began = time.process_time()
    found = replicate(short, model.kept._replace(times=121))
    assert time.process_time() - began < 1
    assert len(found) > 126 * 2 * 250
