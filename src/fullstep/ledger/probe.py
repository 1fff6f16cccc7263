"""What a probe measured: real steps on real hardware, each rank's raw samples and what they come to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal, NamedTuple

Outcome = Literal["completed", "out_of_memory", "rank_died", "hung", "stopped"]


class Stretch(NamedTuple):
    """Memory in one phase of a micro-batch or of the optimizer's step, on one rank. None: its device has no such counter."""

    step: int
    """of the optimizer, from 1 on; 0: before the first"""
    micro_batch: int
    """from 1 on; 0: outside of them"""
    phase: str
    """load, inputs, forward, loss, backward, optimizer_step, gradients_cleared, compile, evaluation, save; of a command also
    load_and_forward, and forward_and_backward where it is not seen which"""
    allocated_peak_bytes: int
    allocated_end_bytes: int
    reserved_peak_bytes: int | None
    device_used_bytes: int | None
    """by everybody on the device, as its driver says"""


class StepSample(NamedTuple):
    """One optimizer step of one rank."""

    step: int
    seconds: float
    """until the device had done all of it"""
    data_seconds: float
    """making rows and bringing them to the device"""
    tokens: int | None
    """of this rank, padding not among them; None: not known, as of a command"""


class Overlap(NamedTuple):
    """What a device did in one profiled step, from its profiler. Times of kernels that run at once count once."""

    compute_seconds: float
    communication_seconds: float
    exposed_seconds: float
    """communication while nothing is computed"""
    step_seconds: float


class OutOfMemory(NamedTuple):
    """Where memory ran out, and what would have been enough at that instant."""

    rank: int
    step: int
    phase: str
    asked_bytes: int | None
    """by the request that was refused; None: the error does not say"""
    allocated_bytes: int | None
    reserved_bytes: int | None
    limit_bytes: int | None
    """of the device, or that was set"""

    @property
    def where(self) -> str:
        """In words.

        >>> OutOfMemory(1, 0, "load", None, None, None, None).where, OutOfMemory(0, 3, "not_known", None, None, None, None).where
        ('rank 1 while loading', 'rank 0 in step 3')
        """
        if not self.step:
            return f"rank {self.rank} while {'loading' if self.phase == 'load' else self.phase.replace('_', ' ')}"
        return f"rank {self.rank} in {'' if self.phase == 'not_known' else f'{self.phase} of '}step {self.step}"

    @property
    def enough_bytes(self) -> int | None:
        """Allocated then, and the request: a lower bound of what the step needs; None: not known."""
        return None if self.asked_bytes is None or self.allocated_bytes is None else self.allocated_bytes + self.asked_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbedRank:
    """One rank's raw samples."""

    rank: int
    device: str
    memory: tuple[Stretch, ...]
    """of the counted steps, with what came before and after them"""
    steps: tuple[StepSample, ...]
    """that were timed, without the first ones"""
    host_peak_bytes: int | None
    """of this process"""
    overlap: tuple[Overlap, ...] = ()
    evaluation_seconds: float | None = None
    save_seconds: float | None = None
    save_bytes: int | None = None

    @property
    def peak(self) -> Stretch | None:
        """The stretch with the most allocated; None: memory was not counted."""
        return max(self.memory, key=lambda each: each.allocated_peak_bytes, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One probe."""

    outcome: Outcome
    reason: str
    """why it did not complete; empty where it did"""
    made: str
    """time, UTC"""
    command: tuple[str, ...]
    seed: int | None
    """of weights and rows; None: not known, as of a command"""
    model: str
    parameters: int | None
    trainable_parameters: int | None
    worksheet: Mapping[str, Any] | None
    """as it was probed; None: a command of the user's"""
    environment: Mapping[str, Any]
    ranks: tuple[ProbedRank, ...]
    """those that left a record; one of a command once for each of its devices"""
    world_size: int
    out_of_memory: OutOfMemory | None = None
    notes: tuple[str, ...] = ()
    """where the program is not the worksheet's"""
    profile: Mapping[str, Any] = field(default_factory=dict)

    @property
    def worst(self) -> ProbedRank | None:
        """The rank with the highest allocated peak; None: none left a record."""
        counted = [rank for rank in self.ranks if rank.memory]
        return max(counted, key=lambda rank: rank.peak.allocated_peak_bytes if rank.peak else 0, default=None)

    def largest(self, counter: Literal["allocated_peak_bytes", "reserved_peak_bytes", "device_used_bytes"]) -> int | None:
        """The highest value of a counter on any rank; None: no device has it."""
        values = [getattr(stretch, counter) for rank in self.ranks for stretch in rank.memory]
        return max((value for value in values if value is not None), default=None)

    @property
    def step_seconds(self) -> tuple[float, ...]:
        """Of each timed step, that of the slowest rank."""
        by_step: dict[int, list[float]] = {}
        for rank in self.ranks:
            for sample in rank.steps:
                by_step.setdefault(sample.step, []).append(sample.seconds)
        return tuple(max(seconds) for _, seconds in sorted(by_step.items()))

    @property
    def median_step_seconds(self) -> float | None:
        """None: nothing was timed."""
        return median(self.step_seconds) if self.step_seconds else None

    @property
    def tokens_per_second(self) -> float | None:
        """Over all ranks, padding not among them; None: nothing was timed, or tokens are not known."""
        tokens = [sample.tokens for rank in self.ranks for sample in rank.steps]
        known = [each for each in tokens if each is not None]
        return sum(known) / sum(self.step_seconds) if any(known) and len(known) == len(tokens) else None

    @property
    def data_wait_fraction(self) -> float | None:
        """Of the timed steps, the slowest rank's share for data; None: nothing was timed."""
        shares = [sum(s.data_seconds for s in rank.steps) / sum(s.seconds for s in rank.steps) for rank in self.ranks if rank.steps]
        return max(shares, default=None)

    @property
    def exposed_communication_fraction(self) -> float | None:
        """Of the profiled steps, communication that was not hidden behind compute; None: not profiled."""
        seen = [each for rank in self.ranks for each in rank.overlap]
        whole = sum(each.step_seconds for each in seen)
        return sum(each.exposed_seconds for each in seen) / whole if whole else None


def instants_of(memory: Sequence[Stretch]) -> dict[str, int]:
    """The allocated peak of each phase [bytes] in the last counted step, loading and what follows the steps beside it.

    Forward passes after the first one of a step, with their loss, are told apart as ``second_forward``, as estimates name them.

    >>> rows = [Stretch(1, 1, "forward", 5, 0, None, None), Stretch(2, 1, "forward", 7, 0, None, None)]
    >>> instants_of([*rows, Stretch(2, 2, "forward", 9, 0, None, None), Stretch(0, 0, "load", 3, 3, None, None)])
    {'load': 3, 'forward': 7, 'second_forward': 9}
    """
    last = max((each.step for each in memory), default=0)
    found: dict[str, int] = {}
    for each in sorted(memory, key=lambda each: each.step):
        if each.step not in (0, last):
            continue
        name = "second_forward" if each.phase in ("forward", "loss") and each.micro_batch > 1 else each.phase
        found[name] = max(found.get(name, 0), each.allocated_peak_bytes)
    return found
