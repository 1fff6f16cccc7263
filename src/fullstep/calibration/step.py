"""A step that a pilot run measured, put in the place of the formulas': its time, and the network that it asks for."""

from __future__ import annotations

from collections.abc import Mapping

from fullstep.calibration.pilot import Comparison
from fullstep.hardware.links import achieved_share
from fullstep.job import Job
from fullstep.ledger import StepTime
from fullstep.physics.network.required import EXPOSED_SHARE, MOST_GBIT_S, RequiredNetwork, required_from_measurement
from fullstep.physics.timing.step import useful_flop, useful_tokens
from fullstep.quantities import Bounds


def beside_step(rows: Mapping[str, Comparison], step: StepTime | None) -> dict[str, Comparison]:
    """A pilot's figures with the estimate of the step beside those that are of its time."""
    found = dict(rows)
    said = {} if step is None else {"step_seconds": step.seconds, "exposed_communication_fraction": step.exposed_communication_fraction}
    for key in said.keys() & found.keys():
        found[key] = found[key]._replace(estimated=said[key])
    return found


def outrank_step(step: StepTime | None, job: Job) -> StepTime | None:
    """The step as it was measured, also where the formulas cannot say one; its parts are left out, since they would not add up."""
    measured = job.measured
    if "step_seconds" not in measured:
        return step
    share = measured.get("exposed_communication_fraction")
    exposed = None if share is None else Bounds.exact(share)
    seconds = measured["step_seconds"]
    utilization = measured_utilization(job, seconds)
    return StepTime(
        evidence="measured",
        seconds=Bounds.exact(seconds),
        tokens_per_second_per_gpu=Bounds.exact(useful_tokens(job) / seconds),
        model_flops_utilization=None if utilization is None else Bounds.exact(utilization),
        exposed_communication_fraction=exposed,
        bound_by=None,
        parts=(),
    )


def measured_utilization(job: Job, step_seconds: float) -> float | None:
    """MFU = useful FLOP of a step / peak of the card / seconds; None: the worksheet names no card, or its peak is not known.

    Args:
        job: whose step was measured
        step_seconds: of the slowest rank [s]
    """
    peak = job.machine.card.bf16_flop_per_second if job.machine.card is not None else None
    return None if peak is None else useful_flop(job) / peak / step_seconds


def measured_network(job: Job, node_bytes: float, exposed_share: float = EXPOSED_SHARE) -> RequiredNetwork | None:
    """The line rate per node that a measured step asks for [Gbit/s]; None: what was exposed, or on which network, was not measured.

    Args:
        job: with its ``[measured]`` table
        node_bytes: that a node sends per step [bytes]
        exposed_share: of the step, that communication may take
    """
    measured, machine = job.measured, job.machine
    if machine.nodes == 1 or not {"step_seconds", "exposed_communication_fraction"} <= measured.keys() or machine.network_gbit_s is None:
        return None
    shares = achieved_share("rdma" if machine.rdma else "tcp", "", "all_gather", machine.network_gbit_s)
    found = [
        required_from_measurement(
            node_bytes=node_bytes, line_gbit_s=machine.network_gbit_s, step_seconds=measured["step_seconds"],
            measured_share=measured["exposed_communication_fraction"], achieved=share, exposed_share=exposed_share,
        )
        for share in shares
    ]  # fmt: skip
    known = sorted(MOST_GBIT_S if rate is None else min(rate, MOST_GBIT_S) for rate in found)
    if known[1] >= MOST_GBIT_S:
        why = f"so much of the measured step waits that {MOST_GBIT_S:,.0f} Gbit/s are not enough"
        return RequiredNetwork(None, node_bytes, why)
    return RequiredNetwork(Bounds(known[0], known[1], known[2]), node_bytes, "")
