"""The collectives of one optimizer step, from a job."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fullstep.job import Job
from fullstep.physics.network.collective import Collective
from fullstep.physics.network.cut import (
    context_collectives,
    expert_collectives,
    layer_split_collectives,
    pipeline_collectives,
    tensor_collectives,
)
from fullstep.physics.network.replicated import ddp_collectives, zero_collectives
from fullstep.physics.network.sharded import sharded_collectives

DEGREES: tuple[tuple[str, Callable[[Job], Iterator[Collective]]], ...] = (
    ("tensor", tensor_collectives),
    ("pipeline", pipeline_collectives),
    ("context", context_collectives),
    ("expert", expert_collectives),
)


def step_collectives(job: Job) -> tuple[Collective, ...]:
    """Everything that the worst rank exchanges in one optimizer step: of its strategy, and of each degree above 1.

    Args:
        job: complete

    Returns:
        collectives that move something between at least two ranks; () on one GPU. Payloads in bytes

    Source:
        each family's own function

    Valid:
        start-up, evaluation and checkpoints are not part of a step; scalars (loss, norm of the gradients) are left out
    """
    found: list[Collective] = []
    strategy = job.layout.strategy
    if strategy == "layer_split":
        found += layer_split_collectives(job)
    elif job.layout.divides_parameters:
        found += sharded_collectives(job)
    elif strategy in ("zero1", "zero2"):
        found += zero_collectives(job)
    elif strategy == "ddp" or job.layout.context > 1:
        found += ddp_collectives(job)
    for degree, collectives in DEGREES:
        if getattr(job.layout, degree) > 1:
            found += collectives(job)
    return tuple(one for one in found if one.ranks > 1 and one.times and one.payload_bytes)
