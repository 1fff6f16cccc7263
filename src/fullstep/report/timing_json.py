"""Time, traffic and the run as the contract's objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fullstep.ledger import Cost, Flop, Run, StepTime, Traffic


def step_as_dict(step: StepTime | None, flop: Sequence[Flop] = ()) -> dict[str, Any] | None:
    """The object ``step``."""
    if step is None:
        return None
    utilization, exposed = step.model_flops_utilization, step.exposed_communication_fraction
    return {
        "evidence": step.evidence,
        "seconds": step.seconds.as_dict(),
        "tokens_per_second_per_gpu": step.tokens_per_second_per_gpu.as_dict(),
        "model_flops_utilization": None if utilization is None else utilization.as_dict(),
        "exposed_communication_fraction": None if exposed is None else exposed.as_dict(),
        "bound_by": step.bound_by,
        "parts": [{"what": part.what, "seconds": part.seconds.as_dict(), "bound_by": part.bound_by} for part in step.parts],
        "flop_per_gpu": [{"what": part.what, "phase": part.phase, "flop": part.flop} for part in flop],
    }


def traffic_as_dict(traffic: Traffic | None) -> dict[str, Any] | None:
    """The object ``traffic``."""
    if traffic is None:
        return None
    rate = traffic.required_gbit_s_per_node
    return {
        "evidence": traffic.evidence,
        "sent_bytes_per_gpu_per_step": {
            "inside_node": round(traffic.inside_node_bytes), "between_nodes": round(traffic.between_nodes_bytes),
        },
        "required_gbit_s_per_node": None if rate is None else rate.as_dict(),
    }  # fmt: skip


def run_as_dict(run: Run | None) -> dict[str, Any] | None:
    """The object ``run``."""
    if run is None:
        return None
    return {
        "optimizer_steps": run.optimizer_steps,
        "seconds": run.seconds.as_dict(),
        "evaluation_seconds": run.evaluation_seconds.as_dict(),
        "checkpoint_seconds": None if run.checkpoint_seconds is None else run.checkpoint_seconds.as_dict(),
        **_cost(run.cost),
    }


def _cost(cost: Cost | None) -> dict[str, Any]:
    if cost is None:
        return {"cost": None, "bill": None}
    from fullstep.report.cost_json import bill_line_as_dict, cost_as_dict  # noqa: PLC0415 (only what has a price pays for it)

    return {"cost": cost_as_dict(cost), "bill": [bill_line_as_dict(line, cost.bill.currency) for line in cost.bill.lines]}
