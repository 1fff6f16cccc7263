"""Time, traffic, checkpoints and the run beside the memory of an answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fullstep.calibration import beside_step, measured_network, outrank_step
from fullstep.calibration.narrowing import narrow_step
from fullstep.job import Job
from fullstep.ledger import Answer, Caution, Flop, Run, StepTime, Timing, Traffic
from fullstep.physics.network.collective import Collective, sent_bytes_per_gpu_per_step
from fullstep.physics.network.fabric import fabric_of
from fullstep.physics.network.required import EXPOSED_SHARE, RequiredNetwork, required_network
from fullstep.physics.network.traffic import step_collectives
from fullstep.physics.timing.compute import compute_parts
from fullstep.physics.timing.flops import step_flops
from fullstep.physics.timing.run import run_time
from fullstep.physics.timing.step import bubble_seconds, phase_seconds, step_time, why_no_step_time
from fullstep.plan.checkpoints import checkpoint_cautions, size_checkpoint
from fullstep.quantities import Bounds


def with_time_alone(job: Job, answer: Answer) -> Answer:
    """The same without the traffic, whose network takes many times as long to work out as the time of a step."""
    return with_timing(job, answer, with_traffic=False)


def with_timing(job: Job, answer: Answer, exposed_share: float = EXPOSED_SHARE, *, with_traffic: bool = True) -> Answer:
    """The answer with its step's time, its traffic, its checkpoints and its run. A pilot's figures outrank the formulas', which records of
    near worksheets narrow.

    Args:
        job: complete
        answer: with its memory
        exposed_share: of the step, that communication may take on the network that is asked for
        with_traffic: with what is sent, and the network that it needs
    """
    estimated = step_time(job)
    step = outrank_step(None if estimated is None else narrow_step(estimated, job.from_records.places), job)
    run = None if step is None else run_time(job, step.seconds)
    flop = tuple(Flop(part.component.replace("_", " "), part.phase, part.flop) for part in step_flops(job).parts)
    timing = Timing(step, traffic_of(job, exposed_share) if with_traffic else None, run, tuple(_open(job, step, run)), flop)
    checkpoint = size_checkpoint(job)
    warnings = (*answer.warnings, *_impossible(step), *checkpoint_cautions(job, checkpoint))
    return replace(answer, timing=timing, checkpoint=checkpoint, measured=beside_step(answer.measured, estimated), warnings=warnings)


def _impossible(step: StepTime | None) -> list[Caution]:
    """A pilot's step that no card of this kind can have made."""
    share = None if step is None or step.evidence != "measured" else step.model_flops_utilization
    if share is None or share.likely <= 1:
        return []
    text = f"the measured step computes {100 * share.likely:.0f} % of what the card can: is measured.step_seconds of this very worksheet?"
    return [Caution("F300", text)]


def traffic_of(job: Job, exposed_share: float = EXPOSED_SHARE) -> Traffic:
    """Bytes that one GPU sends per optimizer step, and the network that this needs between nodes."""
    collectives = step_collectives(job)
    sent = sent_bytes_per_gpu_per_step(collectives)
    measured = measured_network(job, sent.between_nodes * job.machine.gpus, exposed_share)
    needed = measured or _estimated_network(job, collectives, exposed_share)
    return Traffic(
        evidence="estimated" if measured is None else "measured",
        inside_node_bytes=sent.inside_node,
        between_nodes_bytes=sent.between_nodes,
        required_gbit_s_per_node=needed.gbit_s_per_node,
        why_no_rate=needed.why,
        exposed_share=exposed_share,
    )


def _estimated_network(job: Job, collectives: Sequence[Collective], exposed_share: float) -> RequiredNetwork:
    """What the formulas say, as far as they know how long the GPUs compute; one server needs none."""
    if job.machine.nodes == 1:
        return RequiredNetwork(Bounds.exact(0.0), 0.0, "")
    parts = compute_parts(job)
    if parts is None:
        return RequiredNetwork(None, 0.0, why_no_step_time(job))
    idle = bubble_seconds(job, parts).likely
    return required_network(collectives, fabric_of(job), phase_seconds(job, parts), exposed_share, idle=idle)


def _open(job: Job, step: StepTime | None, run: Run | None) -> list[tuple[str, str]]:
    """Parts that stay open, with their reason."""
    found: list[tuple[str, str]] = []
    if step is None:
        found.append(("step", why_no_step_time(job)))
    if run is None:
        found.append(("run", "the time of a step is not known" if step is None else "no data set is stated"))
    else:
        found.append(("run.cost", "no offer of such machines is known" if job.machine.card is not None else "no GPU is named"))
    return found
