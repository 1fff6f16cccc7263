"""Time, traffic and the run beside the memory of an answer."""

from __future__ import annotations

from dataclasses import replace

from fullstep.calibration import beside_step, measured_network, outrank_step
from fullstep.job import Job
from fullstep.ledger import Answer, Run, StepTime, Timing, Traffic
from fullstep.physics.network.collective import sent_bytes_per_gpu_per_step
from fullstep.physics.network.fabric import fabric_of
from fullstep.physics.network.required import required_network
from fullstep.physics.network.traffic import step_collectives
from fullstep.physics.timing.compute import compute_parts
from fullstep.physics.timing.run import run_time
from fullstep.physics.timing.step import bubble_seconds, phase_seconds, step_time, why_no_step_time
from fullstep.quantities import Bounds


def with_timing(job: Job, answer: Answer) -> Answer:
    """The answer with its step's time, its traffic and its run. A pilot's figures outrank the formulas'."""
    estimated = step_time(job)
    step = outrank_step(estimated, job)
    run = None if step is None else run_time(job, step.seconds)
    timing = Timing(step, traffic_of(job), run, tuple(_open(job, step, run)))
    return replace(answer, timing=timing, measured=beside_step(answer.measured, estimated))


def traffic_of(job: Job) -> Traffic:
    """Bytes that one GPU sends per optimizer step, and the network that this needs between nodes."""
    collectives = step_collectives(job)
    sent = sent_bytes_per_gpu_per_step(collectives)
    measured = measured_network(job, sent.between_nodes * job.machine.gpus)
    rate, why = (Bounds.exact(0.0), "") if job.machine.nodes == 1 else (None, why_no_step_time(job))
    needed = measured
    if job.machine.nodes > 1 and measured is None and (parts := compute_parts(job)) is not None:
        needed = required_network(collectives, fabric_of(job), phase_seconds(job, parts), idle=bubble_seconds(job, parts).likely)
    if needed is not None:
        rate, why = needed.gbit_s_per_node, needed.why
    return Traffic(
        evidence="estimated" if measured is None else "measured",
        inside_node_bytes=sent.inside_node,
        between_nodes_bytes=sent.between_nodes,
        required_gbit_s_per_node=rate,
        why_no_rate=why,
    )


def _open(job: Job, step: StepTime | None, run: Run | None) -> list[tuple[str, str]]:
    """Parts that stay open, with their reason."""
    found: list[tuple[str, str]] = []
    if step is None:
        found.append(("step", why_no_step_time(job)))
    if run is None:
        found.append(("run", "the time of a step is not known" if step is None else "no data set is stated"))
    return found

