"""What an optimizer step takes, what it sends, and what the whole run takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from fullstep.evidence import Evidence
from fullstep.ledger.bill import Cost
from fullstep.quantities import Bounds

BoundBy = Literal["compute", "memory", "launch", "pcie", "network", "bubble"]


class StepPart(NamedTuple):
    """A part of one optimizer step [s]; the parts add up to the step."""

    what: str
    seconds: Bounds
    bound_by: BoundBy


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """One optimizer step of the slowest rank. Tokens are useful ones: padding does not count."""

    evidence: Evidence
    seconds: Bounds
    tokens_per_second_per_gpu: Bounds
    model_flops_utilization: Bounds | None
    """share of the card's dense peak, without recomputation and with half of the attention scores; None: no peak is known"""
    exposed_communication_fraction: Bounds | None
    """None: a pilot measured the step, and not this"""
    bound_by: BoundBy | None
    """what most of the likely time is spent on; None: a pilot measured the step, and not why"""
    parts: tuple[StepPart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What one GPU sends per optimizer step [bytes], and the line rate that a node needs [Gbit/s]."""

    evidence: Evidence
    inside_node_bytes: float
    between_nodes_bytes: float
    required_gbit_s_per_node: Bounds | None
    """so that exposed communication stays under ``exposed_share`` of the step; 0: none is needed; None: not known, or none is enough"""
    exposed_share: float
    """of the step, that communication may take on the network asked for"""
    why_no_rate: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """All optimizer steps of the job."""

    optimizer_steps: int
    seconds: Bounds
    evaluation_seconds: Bounds
    """part of ``seconds``"""
    checkpoint_seconds: Bounds | None = None
    """part of ``seconds``; None: not known, and not part of it"""
    cost: Cost | None = None
    """of the cheapest offer; None: no price is known"""


class Flop(NamedTuple):
    """What one GPU computes in one optimizer step, of one component in one phase."""

    what: str
    phase: str
    """forward, recomputation, backward"""
    flop: float


class Timing(NamedTuple):
    """What is known of time; ``open`` says why a part is not."""

    step: StepTime | None
    traffic: Traffic | None
    run: Run | None
    open: tuple[tuple[str, str], ...]
    """(part of the answer, reason)"""
    flop: tuple[Flop, ...] = ()
    """of one optimizer step on one GPU; they do not depend on its card"""
