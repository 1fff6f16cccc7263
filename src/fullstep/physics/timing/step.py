"""One optimizer step put together: what a GPU computes, what it waits for, and the bubble of a pipeline."""

from __future__ import annotations

from collections.abc import Sequence

from fullstep.job import Job
from fullstep.ledger import StepPart, StepTime
from fullstep.ledger.time import BoundBy
from fullstep.physics.network.exposure import PhaseSeconds, exposed_seconds
from fullstep.physics.network.fabric import fabric_of
from fullstep.physics.network.traffic import step_collectives
from fullstep.physics.timing.compute import compute_parts, part_seconds, why_no_time
from fullstep.physics.timing.flops import model_flops
from fullstep.physics.timing.rates import times
from fullstep.physics.timing.tally import TimePart
from fullstep.quantities import Bounds

_COMMUNICATION = "communication not hidden"
_NOTHING = Bounds(0, 0, 0)


def step_time(job: Job) -> StepTime | None:
    """Seconds of one optimizer step of the slowest rank.

    ::

        step = accumulation * (forward + backward) + optimizer step + (stages - 1) * (forward + backward) + what communication adds

    Example: 2 micro-batches of 1 s in 3 stages, an optimizer step of 0.5 s, nothing exposed: ``2 + 0.5 + 2`` = 4.5 s.

    Args:
        job: complete; its machine names a card, and its network where there are several nodes

    Returns:
        seconds with their parts; None where a rate is not known (see ``why_no_step_time``)

    Source:
        Narayanan et al. 2021, Efficient large-scale language model training on GPU clusters, section 2.2.1 (the bubble of 1F1B)

    Valid:
        see the throughput table. Interleaved pipelines have a smaller bubble, which is not counted
    """
    parts = compute_parts(job)
    if parts is None:
        return None
    collectives = step_collectives(job)
    exposed = exposed_seconds(collectives, fabric_of(job), phase_seconds(job, parts), phase_seconds(job, parts, end=0))
    if exposed is None:
        return None
    found = [*_of_step(parts, job.batch.accumulation), *_bubble(job, parts)]
    if exposed.high > 0:
        found.append(StepPart(_COMMUNICATION, exposed, "network"))
    return _assembled(job, tuple(found), exposed)


def why_no_step_time(job: Job) -> str:
    """Why ``step_time`` gives none; empty where it does."""
    return why_no_time(job) or "; ".join(fabric_of(job).why_unknown)


def phase_seconds(job: Job, parts: Sequence[TimePart], end: int = 1) -> PhaseSeconds:
    """Compute of one optimizer step by phase, which communication can hide behind: at one end of the bounds, or likely."""
    found = tuple(parts)
    forward, backward = (part_seconds(found, phase)[end] * job.batch.accumulation for phase in ("forward", "backward"))
    return PhaseSeconds(forward, backward, part_seconds(found, "optimizer_step")[end])


def bubble_seconds(job: Job, parts: Sequence[TimePart]) -> Bounds:
    """What a pipeline's GPUs stand idle: ``(stages - 1) * (forward + backward)`` of a micro-batch."""
    found = tuple(parts)
    micro = part_seconds(found, "forward") + part_seconds(found, "backward")
    return times(micro, job.layout.pipeline - 1)


def useful_tokens(job: Job) -> float:
    """Tokens of one optimizer step that are no padding, per GPU."""
    batch, machine = job.batch, job.machine
    rows = batch.micro_batch * batch.accumulation * job.layout.data_parallel
    return rows * (batch.sequence_tokens if batch.packed else batch.mean_sample_tokens) / (machine.gpus * machine.nodes)


def useful_flop(job: Job) -> float:
    """The model's FLOP of one optimizer step per GPU, the part of padding taken off in proportion to its tokens.

    Where layers lie on several GPUs that take turns, one rank's FLOP are those of all of them.
    """
    batch, machine = job.batch, job.machine
    share = 1.0 if batch.packed else batch.mean_sample_tokens / batch.sequence_tokens
    turns = machine.gpus * machine.nodes if job.layout.strategy == "layer_split" else 1
    return model_flops(job) * share / turns


def _of_step(parts: Sequence[TimePart], accumulation: int) -> list[StepPart]:
    """Parts of one micro-batch times their number; those of one name and bound in one line."""
    found: dict[tuple[str, BoundBy], Bounds] = {}
    for part in parts:
        count = 1 if part.phase == "optimizer_step" else accumulation
        key: tuple[str, BoundBy] = (part.what, part.bound_by)
        found[key] = found.get(key, _NOTHING) + times(part.seconds, count)
    return [StepPart(what, seconds, bound_by) for (what, bound_by), seconds in found.items()]


def _bubble(job: Job, parts: tuple[TimePart, ...]) -> list[StepPart]:
    return [StepPart("pipeline bubble", bubble_seconds(job, parts), "bubble")] if job.layout.pipeline > 1 else []


def _assembled(job: Job, parts: tuple[StepPart, ...], exposed: Bounds) -> StepTime:
    seconds = sum((part.seconds for part in parts), _NOTHING)
    machine = job.machine
    peak = machine.card.bf16_flop_per_second if machine.card is not None else None
    spent: dict[BoundBy, float] = {}
    for part in parts:
        spent[part.bound_by] = spent.get(part.bound_by, 0.0) + part.seconds.likely
    return StepTime(
        evidence="estimated",
        seconds=seconds,
        tokens_per_second_per_gpu=_over(useful_tokens(job), seconds),
        model_flops_utilization=None if peak is None else _over(useful_flop(job) / peak, seconds),
        exposed_communication_fraction=Bounds(
            exposed.low / (exposed.low + seconds.likely - exposed.likely),
            exposed.likely / seconds.likely,
            exposed.high / (exposed.high + seconds.likely - exposed.likely),
        ),
        bound_by=max(spent.items(), key=lambda entry: entry[1])[0],
        parts=parts,
    )


def _over(amount: float, seconds: Bounds) -> Bounds:
    """An amount per second; the longest time is the lowest rate."""
    return Bounds(amount / seconds.high, amount / seconds.likely, amount / seconds.low)
