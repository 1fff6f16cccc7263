"""From the stream of a model with few equal blocks to that of the whole model: the middle one is repeated, event by event.

Every event of a block is written relative to it: which phase, which neighbour, the how-many-th allocation there. Where the stretch that
is repeated and its two neighbours agree in that form in every phase, so would all the blocks that were left out, since each of them
begins in the state in which its neighbour began. Where they do not agree the model has to be traced whole.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from fullstep.lab.trace.worker.stream import OUTSIDE, RELEASE, Stream, TensorRecord

_NEAR = 2
"""neighbours further apart than this are not referred to relatively"""
_Key = tuple[int, int, int]
"""(segment, stretch, how-many-th allocation of that stretch in that segment)"""


class NotAlikeError(Exception):
    """The repeated blocks do not behave alike; the text says where."""


class Stretches(NamedTuple):
    """How blocks are grouped: ``of_block[i]`` is the stretch of kept block i; ``middle`` is the one to repeat, ``repeated`` times more."""

    of_block: tuple[int, ...]
    middle: int
    repeated: int

    def of(self, block: int) -> int:
        return OUTSIDE if block == OUTSIDE else self.of_block[block]


def stretches(blocks: int, first: int, length: int, repeated: int) -> Stretches:
    """Single blocks before the periodic stretch, then whole periods, then single blocks.

    Args:
        blocks: how many are there
        first: block with which the stretch to repeat begins
        length: of the period
        repeated: how often it was left out

    >>> stretches(8, first=4, length=2, repeated=3).of_block
    (0, 0, 1, 1, 2, 2, 3, 3)
    """
    lead = first % length
    found: list[int] = [*range(lead)]
    number = lead
    for start in range(lead, blocks, length):
        whole = start + length <= blocks
        for offset in range(min(length, blocks - start)):
            found.append(number if whole else number + offset)
        number = found[-1] + 1
    return Stretches(tuple(found), found[first], repeated)


def replicate(stream: Stream, groups: Stretches) -> Stream:
    """The stream of the whole model. Blocks keep their numbers up to the repeated stretch; those behind it are moved up.

    Raises:
        NotAlikeError: the neighbours of the repeated stretch behave otherwise
    """
    if not groups.repeated:
        return stream
    book = _Book(stream, groups)
    book.check()
    return book.expanded()


class _Book:
    """The stream in relative form."""

    def __init__(self, stream: Stream, groups: Stretches) -> None:
        self.stream, self._groups = stream, groups
        self.middle, self.repeated = groups.middle, groups.repeated
        self.group = [groups.of(block) for block in stream.blocks]
        self.key: list[_Key | None] = [None] * len(stream.tensors)
        self.by_key: dict[_Key, int] = {}
        seen: Counter[tuple[int, int]] = Counter()
        for index, which in enumerate(stream.which):
            if stream.sizes[index] == RELEASE:
                continue
            record = stream.tensors[which]
            where = (record.segment, groups.of(record.block))
            key = (*where, seen[where])
            seen[where] += 1
            self.key[which] = key
            self.by_key[key] = which
        self.period = sum(1 for group in groups.of_block if group == groups.middle)

    def check(self) -> None:
        """The middle and its neighbours have the same events, relative to themselves."""
        forms: dict[int, dict[int, list[tuple[object, ...]]]] = {}
        wanted = (self.middle - 1, self.middle, self.middle + 1)
        for group in wanted:
            forms[group] = defaultdict(list)
        stream = self.stream
        for index, which in enumerate(stream.which):
            group = self.group[index]
            if group in forms:
                forms[group][stream.segment_of_event[index]].append(self._form(index, which, group))
        first = forms[wanted[1]]
        for other in (wanted[0], wanted[2]):
            if set(first) != set(forms[other]):
                raise NotAlikeError(f"stretch {other} takes part in other phases than stretch {self.middle}")
            for segment, events in first.items():
                mine, others = Counter(events), Counter(forms[other][segment])
                if mine != others:
                    where = stream.segments[segment]
                    what = next(iter((mine - others) or (others - mine)))
                    raise NotAlikeError(f"{where.phase} of step {where.step}, micro-batch {where.micro_batch}: {what} only in one of two neighbours")

    def _form(self, index: int, which: int, group: int) -> tuple[object, ...]:
        size = self.stream.sizes[index]
        if size != RELEASE:
            return size, self.stream.streams[index]
        segment, owner, ordinal = self._key(which)
        distance = owner - group
        return RELEASE, segment, ("near", distance) if owner != OUTSIDE and abs(distance) <= _NEAR else ("fixed", owner), ordinal

    def _key(self, which: int) -> _Key:
        key = self.key[which]
        assert key is not None
        return key

    def expanded(self) -> Stream:
        source = self.stream
        found = Stream()
        found.segments = source.segments
        self._made: dict[tuple[int, int], int] = {}
        self._found = found
        for start, end in self._runs():
            if self.group[start] == self.middle:
                copies = range(self.repeated + 1)
                for copy in copies if self._ascends(start, end) else reversed(copies):
                    self._append(start, end, copy)
            else:
                self._append(start, end, 0)
        self._settle(found)
        return found

    def _runs(self) -> Iterator[tuple[int, int]]:
        """(first, behind the last) of the stretches of events that one group has to itself."""
        index, count = 0, len(self.stream)
        segments = self.stream.segment_of_event
        while index < count:
            end = index + 1
            while end < count and self.group[end] == self.group[index] and segments[end] == segments[index]:
                end += 1
            yield index, end
            index = end

    def _ascends(self, start: int, end: int) -> bool:
        """Whether lower blocks come first here: by the neighbour that was at work before, else by the one that follows."""
        segments, here = self.stream.segment_of_event, self.stream.segment_of_event[start]
        index = start - 1
        while index >= 0 and segments[index] == here:
            if abs(self.group[index] - self.middle) == 1:
                return self.group[index] < self.middle
            index -= 1
        index = end
        while index < len(segments) and segments[index] == here:
            if abs(self.group[index] - self.middle) == 1:
                return self.group[index] > self.middle
            index += 1
        return True

    def _append(self, start: int, end: int, copy: int) -> None:
        """Events ``start`` to ``end`` of one stretch, for its ``copy``-th repetition."""
        source, found = self.stream, self._found
        for index in range(start, end):
            which, size = source.which[index], source.sizes[index]
            group, block = self.group[index], source.blocks[index]
            if size != RELEASE:
                made = self._make(which, copy)
            else:
                made = self._made[self._refers(which, group, copy)]
            found.append(made, size, source.streams[index], self._block(block, group, copy), source.segment_of_event[index])

    def _make(self, which: int, copy: int) -> int:
        record = self.stream.tensors[which]
        key = self._key(which)
        made = len(self._found.tensors)
        self._found.tensors.append(self._moved(record, key[1], copy))
        self._made[which, copy] = made
        return made

    def _moved(self, record: TensorRecord, group: int, copy: int) -> TensorRecord:
        if group == OUTSIDE or group < self.middle or (group == self.middle and copy == 0):
            return record
        block = self._block(record.block, group, copy)
        return TensorRecord(
            record.size_bytes, record.shape, record.dtype, record.operation, _renumbered(record.module, record.block, block), record.line,
            record.segment, block, record.holding,
        )  # fmt: skip

    def _block(self, block: int, group: int, copy: int) -> int:
        if block == OUTSIDE or group < self.middle:
            return block
        return block + (copy if group == self.middle else self.repeated) * self.period

    def _refers(self, which: int, group: int, copy: int) -> tuple[int, int]:
        """(tensor of the source, its copy) that a release in the ``copy``-th repetition of ``group`` means."""
        key = self._key(which)
        owner = key[1]
        if owner == OUTSIDE:
            return which, 0
        if group == OUTSIDE or abs(owner - group) > _NEAR:
            return which, 0
        place = group if group <= self.middle and copy == 0 else (group + copy if group == self.middle else group + self.repeated)
        target = place + owner - group
        if target <= self.middle:
            source, number = target, 0
        elif target <= self.middle + self.repeated:
            source, number = self.middle, target - self.middle
        else:
            source, number = target - self.repeated, 0
        return self.by_key[key[0], source, key[2]], number

    def _settle(self, found: Stream) -> None:
        """Nothing is released twice or before it is there; floating-point operations are those of all repetitions."""
        live: set[int] = set()
        for which, size in zip(found.which, found.sizes, strict=True):
            if size != RELEASE:
                live.add(which)
            elif which in live:
                live.remove(which)
            else:
                raise NotAlikeError("a tensor would be released twice")
        before = sum(self._live_at_end())
        if len(live) < before:
            raise NotAlikeError("tensors are missing at the end")
        for (segment, block), flops in self.stream.flops.items():
            group = self._groups.of(block)
            copies = range(self.repeated + 1) if group == self.middle else (0,)
            for copy in copies:
                where = (segment, self._block(block, group, copy))
                found.flops[where] = found.flops.get(where, 0) + flops

    def _live_at_end(self) -> list[bool]:
        alive: Counter[int] = Counter()
        for which, size in zip(self.stream.which, self.stream.sizes, strict=True):
            alive[which] += 1 if size != RELEASE else -1
        return [count > 0 for count in alive.values()]


def _renumbered(module: str, old: int, new: int) -> str:
    """The same module in another block: the first number in its name that is the old block's.

    >>> _renumbered("model.layers.3.mlp", 3, 17)
    'model.layers.17.mlp'
    """
    parts = module.split(".")
    for index, part in enumerate(parts):
        if part == str(old):
            parts[index] = str(new)
            break
    return ".".join(parts)
