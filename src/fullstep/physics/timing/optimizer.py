"""Bytes that an optimizer step reads and writes per parameter, by optimizer, implementation and dtype."""

from __future__ import annotations

from fullstep.job import Job
from fullstep.physics.memory.cut import expert_parameters
from fullstep.physics.memory.optimizer import matrix_sides, state_bytes
from fullstep.physics.memory.weights import gradient_bytes, trainable, weight_bytes
from fullstep.quantities import DTYPE_BYTES

_NEWTON_SCHULZ_STEPS = 5
_HUGE_TENSORS = ("adamw_8bit", "adamw_4bit", "lion_8bit", "paged_adamw_8bit")


def update_bytes(name: str, implementation: str, parameter: float, gradient: float, state: float, *, master: bool) -> float:
    """Bytes per parameter of the update itself.

    One kernel (fused, 8 bits): parameter r w, gradient r, both states r w: ``2 p + g + 4 s``. foreach and single run AdamW in eight steps:
    decay r w, first moment r r w, second r w and r r w, root r w, correction r w, epsilon r w, update r r r w:
    ``5 p + 3 g + 12 s``, 20 passes where all are equal. A float32 master copy beside 16-bit weights is what is updated; the weights are
    written from it (r4 w2) and the gradient is widened (r2 w4).

    Args:
        name: optimizer
        implementation: foreach, fused, single, deepspeed
        parameter: bytes of one element that is updated
        gradient: of its gradient
        state: of one state
        master: a float32 copy is updated

    Returns:
        [bytes] per parameter

    Source:
        torch.optim, _multi_tensor_adam; bitsandbytes, kOptimizerStatic8bit2StateBlockwise; apex, FusedAdam

    >>> update_bytes("adamw", "foreach", 2, 2, 2, master=False), update_bytes("adamw", "fused", 4, 4, 4, master=False)
    (40.0, 28.0)
    """
    extra = 12.0 if master else 0.0
    p, g, s = (4.0, 4.0, state) if master else (parameter, gradient, state)
    if name in _HUGE_TENSORS:
        return extra + 2 * p + g + (2 if name == "lion_8bit" else 4) * s
    if name == "sgd":
        return extra + 2 * p + g
    if name in ("sgd_momentum", "lion"):
        return extra + 2 * p + g + (2 * s if implementation == "fused" else 4 * s + p)
    if name == "adafactor":
        return extra + 2 * p + 8 * 4 + g
    if name == "muon":
        return extra + 2 * p + g + 2 * s + 2 * _NEWTON_SCHULZ_STEPS * 2 * 3
    fused = implementation in ("fused", "deepspeed") or name in ("paged_adamw", "galore", "apollo")
    return extra + (2 * p + g + 4 * s if fused else 5 * p + 3 * g + 12 * s)


def step_bytes(job: Job) -> float:
    """Bytes that one GPU reads and writes in an optimizer step: clipping (norm r, scaling r w) and the update of its share [bytes].

    Tensor and pipeline parallelism divide what trains; sharding divides the update once more.
    """
    trains = trainable(job).total
    if not trains:
        return 0.0
    count = {"adamw_8bit": 2, "paged_adamw_8bit": 2, "adamw_4bit": 2, "lion_8bit": 1}.get(job.optimizer.name)
    state = state_bytes(job) / trains / count if count else float(DTYPE_BYTES[job.optimizer.state_dtype])
    gradient = gradient_bytes(job) / trains
    parameter = _trained_bytes(job) / trains
    update = update_bytes(job.optimizer.name, job.optimizer.implementation, parameter, gradient, state, master=job.precision.master_weights)
    return (update + 3 * gradient) * elements_here(job)


def elements_here(job: Job) -> float:
    """Elements that one GPU updates: sharding divides them by ``shards * context``; without it a rank has the experts dealt to it."""
    layout = job.layout
    if layout.state_ranks > 1:
        return trainable(job).total / (layout.state_ranks * layout.tensor * layout.pipeline)
    return trained_on_rank(job)


def trained_on_rank(job: Job) -> float:
    """Elements that train of a rank's part of the model, before sharding: tensor and pipeline cut them, experts are dealt out."""
    elsewhere = experts_elsewhere(job) if job.method.kind == "full" else 0.0
    return (trainable(job).total - elsewhere) / (job.layout.tensor * job.layout.pipeline)


def experts_elsewhere(job: Job) -> float:
    """Elements of the experts that expert parallelism dealt to other ranks, before tensor and pipeline parallelism cut what is left."""
    if job.layout.expert == 1:
        return 0.0
    return sum(expert_parameters(job.shape.blocks[index]) for index in job.shape.layers) * (1 - 1 / job.layout.expert)


def _trained_bytes(job: Job) -> float:
    if job.method.kind == "full":
        return float(trainable(job).total * DTYPE_BYTES[job.precision.weights])
    weights = weight_bytes(job)
    return weights.adapters + weights.modules


def orthogonalization_flop(job: Job) -> float:
    """Muon's five Newton-Schulz steps on one GPU: per step and matrix of sides ``m <= n``: ``4 m^2 n + 2 m^3`` [FLOP].

    Source:
        Jordan et al. 2024, Muon: X' = a X + (b A + c A A) X with A = X X^T
    """
    if job.optimizer.name != "muon":
        return 0.0
    flop = 0.0
    for rows, columns, count in matrix_sides(job):
        short, long = sorted((rows, columns))
        if long < job.shape.vocabulary:
            flop += count * _NEWTON_SCHULZ_STEPS * (4.0 * short**2 * long + 2.0 * short**3)
    return flop / (job.layout.state_ranks * job.layout.tensor * job.layout.pipeline)


def offloaded_bytes(job: Job) -> tuple[float, float]:
    """Bytes over PCIe, and bytes in host memory, of an optimizer step on the host: gradients down, weights up; update there.

    Per element: gradient in its dtype down, 16-bit weight up; the host reads and writes float32 weight, states and gradient in one pass:
    28 bytes for AdamW, 12 for SGD.

    Source:
        Ren et al. 2021 (ZeRO-Offload), section 4
    """
    if not (job.layout.offload_optimizer or job.layout.offload_parameters):
        return 0.0, 0.0
    elements = elements_here(job)
    host = update_bytes(job.optimizer.name, "fused", 4, 4, 4, master=False)
    return elements * (gradient_bytes(job) / max(1, trainable(job).total) + 2), elements * host
