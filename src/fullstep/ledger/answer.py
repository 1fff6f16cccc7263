"""The answer to one worksheet. Parts that cannot be answered are None, and ``assumptions`` says why."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from fullstep.evidence import Assumption, Evidence
from fullstep.ledger.instants import At, Instant
from fullstep.quantities import Bounds

if TYPE_CHECKING:  # they are written in terms of what stands here
    from fullstep.ledger.checkpoint import Checkpoint
    from fullstep.ledger.estimate import MemoryEstimate
    from fullstep.ledger.time import Timing
    from fullstep.ledger.trace import Trace

Verdict = Literal["fits", "tight", "does_not_fit", "unknown"]


class Caution(NamedTuple):
    """Something the user should know; ``code`` has a page in the docs."""

    code: str
    text: str


class OtherPeaks(NamedTuple):
    """Bytes on one GPU outside the steady step. None: does not occur."""

    load: float | None = None
    evaluation: float | None = None
    save: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Per GPU, the worst rank, the steady step. All sizes in bytes."""

    evidence: Evidence
    allocated_peak_bytes: Bounds
    reserved_peak_bytes: Bounds
    device_peak_bytes: Bounds
    needed_bytes: Bounds
    peak_at: At
    instants: tuple[Instant, ...]
    other_peaks: OtherPeaks
    usable_bytes: int | None
    verdict: Verdict
    reason: str = ""
    """why the verdict is what it is, for people"""

    @property
    def peak(self) -> Instant:
        return next(instant for instant in self.instants if instant.at == self.peak_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMemory:
    """Host RAM of one node, in bytes."""

    evidence: Evidence
    memory_peak_bytes: float
    at: str
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """All that one worksheet is answered with."""

    parameters: int
    trainable_parameters: int
    memory: Memory
    host: HostMemory
    assumptions: tuple[Assumption, ...] = ()
    warnings: tuple[Caution, ...] = ()
    measured: dict[str, Any] = field(default_factory=dict)
    """figures of a pilot, as stated in the worksheet; they stand beside the estimate and outrank it"""
    timing: Timing | None = None
    """time, traffic and the run; None: not asked for, as in a search over layouts"""
    checkpoint: Checkpoint | None = None
    """None: not asked for, as in a search over layouts, or the formulas do not know the model"""
    trace: Trace | None = None
    """what one step of the real model class was seen to do; ``memory`` is traced then, or measured where a pilot outranks it"""
    estimated: MemoryEstimate | None = None
    """beside a trace: the formulas' account of the same step; None where they do not know the model"""
