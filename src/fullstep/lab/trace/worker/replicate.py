"""From the stream of a model with few equal blocks to that of the whole model: a stretch of blocks is repeated, event by event.

A model that repeats itself every ``length`` blocks is traced with three such stretches, some blocks more on either side, and the others
left out. Every event of a stretch is written relative to it: which block of the stretch, and for a release, how many blocks away and the
how-many-th there the tensor was made. Where three stretches in a row agree in that form, and follow each other without anything between,
every one that was left out would have done the same, since it would have begun in the state in which its neighbour began. Then the middle
one is repeated in its place. Where they do not agree, the model has to be traced whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

from fullstep.lab.trace.worker.stream import OUTSIDE, RELEASE, Stream

_BEFORE, _MIDDLE, _BEHIND, _FAR = -1, 0, 1, 2
"""stretches: the one that is repeated, its neighbours, and everything else"""
_Form = tuple[int | None, ...]


class NotAlikeError(Exception):
    """The equal blocks do not behave alike; the text says where."""


class Repetition(NamedTuple):
    """Blocks ``first`` to ``first + length - 1`` stand for themselves and ``times`` stretches more behind them."""

    first: int
    length: int
    times: int


class _Run(NamedTuple):
    """Events ``start`` to ``end - 1``: all in one segment and of one stretch."""

    segment: int
    zone: int
    start: int
    end: int


def replicate(stream: Stream, repetition: Repetition) -> Stream:
    """The stream of the whole model. Blocks behind the repeated stretch are moved up.

    Args:
        stream: of the model with fewer blocks, every event with its block
        repetition: what to repeat; there is one stretch more of the same kind on either side of it

    Raises:
        NotAlikeError: the stretch and its neighbours do not behave alike, or a tensor is made of those of all blocks
    """
    if not repetition.times:
        return stream
    if stream.joins:
        raise NotAlikeError(f"{stream.joins} joins tensors of many blocks")
    source = _Source(stream, repetition)
    runs = list(source.runs())
    _check_order(source, runs)
    _check_flops(source)
    return _Writer(source).written(runs)


class _Source:
    """The short stream, and the names of its tensors by which they are found in another block."""

    def __init__(self, stream: Stream, repetition: Repetition) -> None:
        self.stream, self.repetition = stream, repetition
        self.name: list[tuple[int, int, int]] = [(0, OUTSIDE, -1)] * len(stream.tensors)
        """(segment, block, the how-many-th allocation of that block in that segment)"""
        self.named: dict[tuple[int, int, int], int] = {}
        seen: Counter[tuple[int, int]] = Counter()
        for which, size in zip(stream.which, stream.sizes, strict=True):
            if size != RELEASE:
                record = stream.tensors[which]
                where = record.segment, record.block
                self.name[which] = name = (*where, seen[where])
                self.named[name] = which
                seen[where] += 1

    def zone(self, block: int) -> int:
        first, length, _ = self.repetition
        if not max(0, first - length) <= block < first + 2 * length:
            return _FAR
        return (block - first) // length

    def runs(self) -> Iterator[_Run]:
        stream = self.stream
        zones = {block: self.zone(block) for block in set(stream.blocks)}
        where = zip(stream.segment_of_event, map(zones.__getitem__, stream.blocks), strict=True)
        start = 0
        for (segment, zone), events in groupby(where):
            end = start + sum(1 for _ in events)
            yield _Run(segment, zone, start, end)
            start = end

    def form(self, event: int) -> _Form:
        """An event relative to its block, and the block relative to its stretch."""
        stream = self.stream
        block, size = stream.blocks[event], stream.sizes[event]
        place = (block - self.repetition.first) % self.repetition.length
        if size != RELEASE:
            return place, size, stream.streams[event]
        segment, owner, ordinal = self.name[stream.which[event]]
        return place, segment, None if owner == OUTSIDE else owner - block, ordinal

    def outside_releases(self, run: _Run) -> Iterator[list[int]]:
        """Releases outside of the blocks, as many as follow each other: their order means nothing."""
        stream = self.stream
        for together, events in groupby(range(run.start, run.end), lambda at: stream.sizes[at] == RELEASE and stream.blocks[at] == OUTSIDE):
            if together:
                yield list(events)

    def place_words(self, run: _Run) -> str:
        segment = self.stream.segments[run.segment]
        return f"{segment.phase.replace('_', ' ')} of step {segment.step}, micro-batch {segment.micro_batch}"


def _check_order(source: _Source, runs: list[_Run]) -> None:
    """Everywhere the repeated stretch lies between its neighbours, and they do the same."""
    counts = Counter((run.segment, run.zone) for run in runs)
    padded = [None, *runs, None]
    for before, run, behind in zip(padded, runs, padded[2:], strict=False):
        if run.zone == _FAR:
            _check_outside(source, run)
            continue
        if len({counts[run.segment, zone] for zone in (_BEFORE, _MIDDLE, _BEHIND)}) != 1:
            raise NotAlikeError(f"{source.place_words(run)}: not every block is as often at work")
        if run.zone != _MIDDLE:
            continue
        if before is None or behind is None or before.segment != behind.segment or {before.zone, behind.zone} != {_BEFORE, _BEHIND}:
            raise NotAlikeError(f"{source.place_words(run)}: something happens between two blocks that belongs to none")
        middle = _forms(source, run)
        for other in (before, behind):
            if _forms(source, other) != middle:
                raise NotAlikeError(f"{source.place_words(run)}: {_first_difference(source, run, other)}")


def _check_outside(source: _Source, run: _Run) -> None:
    """Where tensors of the repeated stretch are released outside of the blocks, those of its neighbours are too, and at once.

    Those of one neighbour alone may be: what the last block did not release, the model does behind it.
    """
    first, length, _ = source.repetition
    for events in source.outside_releases(run):
        found: dict[int, set[_Form]] = {_BEFORE: set(), _MIDDLE: set(), _BEHIND: set()}
        for at in events:
            segment, owner, ordinal = source.name[source.stream.which[at]]
            zone = source.zone(owner)
            if zone != _FAR:
                found[zone].add((segment, (owner - first) % length, ordinal))
        at_an_edge = not found[_MIDDLE] and not (found[_BEFORE] and found[_BEHIND])
        if not at_an_edge and not found[_BEFORE] == found[_MIDDLE] == found[_BEHIND]:
            raise NotAlikeError(f"{source.place_words(run)}: tensors of some blocks are released outside of them, of others not")


def _check_flops(source: _Source) -> None:
    """The stretches compute as much, in every phase."""
    first, length, _ = source.repetition
    found: dict[int, dict[tuple[int, int], int]] = {_BEFORE: {}, _MIDDLE: {}, _BEHIND: {}, _FAR: {}}
    for (segment, block), operations in source.stream.flops.items():
        found[source.zone(block)][segment, (block - first) % length] = operations
    if not found[_BEFORE] == found[_MIDDLE] == found[_BEHIND]:
        raise NotAlikeError("some blocks compute more than others")


def _forms(source: _Source, run: _Run) -> list[_Form]:
    return [source.form(event) for event in range(run.start, run.end)]


def _first_difference(source: _Source, run: _Run, other: _Run) -> str:
    pairs = zip(range(run.start, run.end), range(other.start, other.end), strict=False)
    for one, two in pairs:
        if source.form(one) != source.form(two):
            return " but ".join(_event_words(source, event) for event in (one, two))
    ours, theirs = (f"block {source.stream.blocks[each.start]} has {each.end - each.start} events" for each in (run, other))
    return f"{ours} but {theirs}"


def _event_words(source: _Source, event: int) -> str:
    stream = source.stream
    record = stream.tensors[stream.which[event]]
    doing = "releases" if stream.sizes[event] == RELEASE else "allocates"
    return f"block {stream.blocks[event]} {doing} {record.size_bytes} bytes of {record.operation} in {record.module or 'no module'}"


class _Writer:
    """Writes the long stream. A tensor of the repeated stretch has one number for each of its copies, one after another."""

    def __init__(self, source: _Source) -> None:
        self._source = source
        self._first, self._length, self._times = source.repetition
        self._behind = self._first + self._length
        self._found = Stream()
        self._found.segments = source.stream.segments
        self._number: list[int] = []
        for record in source.stream.tensors:
            self._number.append(len(self._found.tensors))
            self._found.tensors += [record.moved(shift) for shift in self._shifts(record.block)]
        self._alive = bytearray(len(self._found.tensors))

    def _shifts(self, block: int) -> Iterable[int]:
        """By how many blocks a block's copies are moved up, the block itself included."""
        if block < self._first:
            return (0,)
        if block >= self._behind:
            return (self._times * self._length,)
        return range(0, (self._times + 1) * self._length, self._length)

    def written(self, runs: list[_Run]) -> Stream:
        last = _FAR
        for run in runs:
            if run.zone == _MIDDLE:
                shifts = list(self._shifts(self._first))
                for shift in shifts if last == _BEFORE else reversed(shifts):
                    self._write_near(run, shift)
            elif run.zone == _FAR:
                self._write_far(run)
            else:
                self._write_near(run, 0 if run.zone == _BEFORE else self._times * self._length)
            last = run.zone
        self._check_released()
        self._add_flops()
        return self._found

    def _write_near(self, run: _Run, shift: int) -> None:
        """Events of the repeated stretch or a neighbour: what they refer to is as far from the block as it was."""
        stream, source, number = self._source.stream, self._source, self._number
        for event in range(run.start, run.end):
            which, block = stream.which[event], stream.blocks[event]
            if stream.sizes[event] != RELEASE:
                copy = shift // self._length if run.zone == _MIDDLE else 0
                self._write(event, number[which] + copy, block + shift)
            else:
                segment, owner, ordinal = source.name[which]
                home, copy = self._home(owner + shift)
                target = source.named.get((segment, home, ordinal))
                if target is None:
                    raise NotAlikeError(f"{source.place_words(run)}: {_event_words(source, event)}, which no other block has")
                self._write(event, number[target] + copy, block + shift)

    def _home(self, block: int) -> tuple[int, int]:
        """(block of the short model, copy) of a block of the long one."""
        if block < self._behind:
            return block, 0
        copy, place = divmod(block - self._first, self._length)
        return (self._first + place, copy) if copy <= self._times else (block - self._times * self._length, 0)

    def _write_far(self, run: _Run) -> None:
        """Events elsewhere: what they refer to is in one block, or in all copies where it is released outside of the blocks."""
        stream, source = self._source.stream, self._source
        for event in range(run.start, run.end):
            which, block = stream.which[event], stream.blocks[event]
            copies: Iterable[int] = (0,)
            if stream.sizes[event] == RELEASE and self._first <= source.name[which][1] < self._behind:
                everyone = range(self._times + 1)
                copies = everyone if block == OUTSIDE else everyone[-1:] if block >= self._behind else everyone[:1]
            for copy in copies:
                self._write(event, self._number[which] + copy, block + (self._times * self._length if block >= self._behind else 0))

    def _write(self, event: int, number: int, block: int) -> None:
        stream = self._source.stream
        size = stream.sizes[event]
        if self._alive[number] == (size != RELEASE):
            raise NotAlikeError(f"{_event_words(self._source, event)}: twice in the whole model")
        self._alive[number] = size != RELEASE
        self._found.append(number, size, stream.streams[event], block, stream.segment_of_event[event])

    def _check_released(self) -> None:
        """A tensor is there at the end where the one that it was made from is."""
        stream = self._source.stream
        there = dict(zip(stream.which, (size != RELEASE for size in stream.sizes), strict=True))
        for which, alive in there.items():
            start = self._number[which]
            end = self._number[which + 1] if which + 1 < len(self._number) else len(self._alive)
            if any(copy != alive for copy in self._alive[start:end]):
                record = stream.tensors[which]
                raise NotAlikeError(f"{record.operation} of block {record.block} is not released as often as it is made")

    def _add_flops(self) -> None:
        for (segment, block), operations in self._source.stream.flops.items():
            for shift in self._shifts(block):
                self._found.flops[segment, block + shift] = operations
