"""A probe with round figures: two ranks, two counted steps, two timed ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fullstep.ledger.probe import OutOfMemory, Overlap, Probe, ProbedRank, StepSample, Stretch

WORKSHEET: dict[str, Any] = {
    "schema": 1,
    "model": {"name": "meta-llama/Llama-3.1-8B"},
    "method": {"kind": "lora", "rank": 8},
    "machine": {"gpu": "H100-SXM", "gpus": 2},
    "layout": {"strategy": "ddp"},
}


def rank_by_hand(rank: int = 0, more_bytes: int = 0) -> ProbedRank:
    """The allocated peak is 7000 in the backward pass of step 2, 9000 are reserved, 12000 used; steps take 2 and 4 s."""
    return ProbedRank(
        rank=rank,
        device=f"cuda:{rank}",
        memory=(
            Stretch(0, 0, "load", 3000, 2000, 4000, 6000),
            Stretch(1, 1, "forward", 5000, 4000, 8000, 11000),
            Stretch(1, 1, "backward", 5500, 4000, 8000, 11000),
            Stretch(2, 1, "forward", 6000, 5000, 9000, 12000),
            Stretch(2, 1, "backward", 7000 + more_bytes, 4000, 9000, 12000),
            Stretch(2, 0, "optimizer_step", 4500, 4000, 9000, 12000),
        ),
        steps=(StepSample(3, 2.0, 0.5, 100), StepSample(4, 4.0, 0.5, 200)),
        host_peak_bytes=800,
        overlap=(Overlap(3.0, 1.0, 0.5, 4.0),),
    )


def probe_by_hand(**changes: Any) -> Probe:
    """A completed probe of :data:`WORKSHEET` on two ranks, the second with a peak of 7100."""
    probe = Probe(
        outcome="completed",
        reason="",
        made="2026-01-31T12:30:45Z",
        command=("fullstep", "probe", "job.toml"),
        seed=0,
        model="meta-llama/Llama-3.1-8B",
        parameters=8_030_261_248,
        trainable_parameters=3_407_872,
        worksheet=WORKSHEET,
        environment={"torch": "2.13.0", "gpu": "NVIDIA H100 80GB HBM3", "driver": None},
        ranks=(rank_by_hand(0), rank_by_hand(1, 100)),
        world_size=2,
        notes=("rows are random",),
    )
    return replace(probe, **changes)


def ran_out_by_hand() -> Probe:
    """Out of memory in the backward pass: 300 were asked for with 700 allocated."""
    ran_out = OutOfMemory(rank=1, step=2, phase="backward", asked_bytes=300, allocated_bytes=700, reserved_bytes=None, limit_bytes=900)
    return probe_by_hand(outcome="out_of_memory", reason="CUDA out of memory", out_of_memory=ran_out, ranks=())
