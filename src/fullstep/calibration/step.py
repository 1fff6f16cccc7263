"""A step that a pilot run measured, put in the place of the formulas': its time, and the network that it asks for."""

from __future__ import annotations

from dataclasses import replace

from fullstep.hardware.links import achieved_share
from fullstep.job import Job
from fullstep.ledger import StepTime
from fullstep.physics.network.required import required_from_measurement
from fullstep.physics.timing.step import useful_flop, useful_tokens
from fullstep.quantities import Bounds


def outrank_step(step: StepTime | None, job: Job) -> StepTime | None:
    """The step as it was measured, also where the formulas cannot say one; its parts are left out, since they would not add up."""
    measured = job.measured
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


def measured_line_rate(job: Job, node_bytes: float) -> Bounds | None:
    """The line rate per node that a measured step asks for [Gbit/s]; None: what was exposed, or on which network, was not measured.

    Args:
        job: with its ``[measured]`` table
        node_bytes: that a node sends per step [bytes]
    """
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
