"""Time, traffic and the run beside the memory of an answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fullstep.hardware.links import achieved_share
from fullstep.job import Job
from fullstep.ledger import Answer, Run, StepTime, Timing, Traffic
from fullstep.physics.network.collective import sent_bytes_per_gpu_per_step
from fullstep.physics.network.fabric import fabric_of
from fullstep.physics.network.required import required_from_measurement, required_network
from fullstep.physics.network.traffic import step_collectives
from fullstep.physics.timing.compute import compute_parts
from fullstep.physics.timing.run import run_time
from fullstep.physics.timing.step import phase_seconds, step_time, useful_flop, useful_tokens, why_no_step_time
from fullstep.quantities import Bounds


def with_timing(job: Job, answer: Answer) -> Answer:
    """The answer with its step's time, its traffic and its run. A pilot's figures outrank the formulas'."""
    step = _outranked(step_time(job), job)
    run = None if step is None else run_time(job, step.seconds)
    return replace(answer, timing=Timing(step, traffic_of(job), run, tuple(_open(job, step, run))))


def traffic_of(job: Job) -> Traffic:
    """Bytes that one GPU sends per optimizer step, and the network that this needs between nodes."""
    collectives = step_collectives(job)
    sent = sent_bytes_per_gpu_per_step(collectives)
    measured = _measured_rate(job, sent.between_nodes * job.machine.gpus)
    rate, why = (Bounds.exact(0.0), "") if job.machine.nodes == 1 else (measured, "" if measured else why_no_step_time(job))
    if job.machine.nodes > 1 and measured is None and (parts := compute_parts(job)) is not None:
        needed = required_network(collectives, fabric_of(job), phase_seconds(job, parts))
        rate, why = needed.gbit_s_per_node, needed.why
    return Traffic(
        evidence="estimated" if measured is None else "measured",
        inside_node_bytes=sent.inside_node,
        between_nodes_bytes=sent.between_nodes,
        required_gbit_s_per_node=rate,
        why_no_rate=why,
    )


def _measured_rate(job: Job, node_bytes: float) -> Bounds | None:
    """The line rate that a pilot's step asks for [Gbit/s]; None: it did not measure what was exposed, or on which network."""
    measured, machine = job.measured, job.machine
    if machine.nodes == 1 or not {"step_seconds", "exposed_communication_fraction"} <= measured.keys() or machine.network_gbit_s is None:
        return None
    shares = achieved_share("rdma" if machine.rdma else "tcp", "", "all_gather", machine.network_gbit_s)
    found = [
        required_from_measurement(
            node_bytes=node_bytes, line_gbit_s=machine.network_gbit_s, step_seconds=measured["step_seconds"],
            measured_share=measured["exposed_communication_fraction"], achieved=share,
        )
        for share in shares
    ]  # fmt: skip
    known = sorted(rate for rate in found if rate is not None)
    return Bounds(known[0], known[1], known[2]) if len(known) == len(found) else None


def _outranked(step: StepTime | None, job: Job) -> StepTime | None:
    """A step as it was measured, also where the formulas cannot say one; its parts are left out, since they would not add up."""
    measured: Mapping[str, float] = job.measured
    share = measured.get("exposed_communication_fraction")
    exposed = None if share is None else Bounds.exact(share)
    if "step_seconds" not in measured:
        return step if step is None or exposed is None else replace(step, exposed_communication_fraction=exposed)
    seconds, card = measured["step_seconds"], job.machine.card
    peak = card.bf16_flop_per_second if card is not None else None
    return StepTime(
        evidence="measured",
        seconds=Bounds.exact(seconds),
        tokens_per_second_per_gpu=Bounds.exact(useful_tokens(job) / seconds),
        model_flops_utilization=None if peak is None else Bounds.exact(useful_flop(job) / peak / seconds),
        exposed_communication_fraction=exposed,
        bound_by=None,
        parts=(),
    )


def _open(job: Job, step: StepTime | None, run: Run | None) -> list[tuple[str, str]]:
    """Parts that stay open, with their reason."""
    found: list[tuple[str, str]] = []
    if step is None:
        found.append(("step", why_no_step_time(job)))
    if run is None:
        found.append(("run", "the time of a step is not known" if step is None else "no data set is stated"))
    return found

