"""What Megatron's own layers and gradient buffers do otherwise than torch's autograd."""

from __future__ import annotations

from functools import lru_cache

from fullstep.job import Job, Settings
from fullstep.models import Block, ModelShape
from fullstep.physics.memory.cut import has_head
from fullstep.quantities import DTYPE_BYTES

_JOINED = ({"query", "key", "value"}, {"gate", "up"}, {"shared_gate", "shared_up"})
"""roles whose matrices are one in Megatron"""


def is_megatron(job: Settings) -> bool:
    """Megatron's own layers and gradient buffers."""
    return "megatron" in (job.step.framework, job.layout.implementation)


def keeps_gradient_buffers(job: Job) -> bool:
    """Gradients are buffers that are there all the time, into which backward writes.

    Source:
        Megatron-LM, core/distributed/param_and_grad_buffer.py
    """
    return is_megatron(job) and not job.layout.divides_parameters and not job.optimizer.in_backward


def placeholder_bytes(job: Job) -> float:
    """Gradients that TransformerEngine hands to autograd in place of the real ones, which its products add to the buffers themselves.

    One per shape of a matrix, kept for good: ``elements * compute`` [bytes] of each different matrix on this rank, the output matrix too.

    Example: Llama-3-70B over 2 ranks: (5,120 + 4,096 + 28,672 + 14,336) * 8,192 elements in a block and 64,128 * 8,192 words, 1.78 GiB.

    Args:
        job: one rank's

    Returns:
        [bytes]; 0 where nothing but adapters trains

    Source:
        TransformerEngine, pytorch/module/base.py get_dummy_wgrad; Megatron-LM, core/tensor_parallel/layers.py
        LinearWithGradAccumulationAndAsyncCommunication.backward

    Valid:
        with it ten published peaks of Megatron-LM on 8 B200 (70B and 405B shapes cut to 12 and 4 layers) lie within 1 %
    """
    if not keeps_gradient_buffers(job) or job.method.kind != "full":
        return 0.0
    element = 2 if job.precision.compute == "fp8" else DTYPE_BYTES[job.precision.compute]
    return float(_different_elements(job.shape) * element)


@lru_cache(maxsize=256)
def _different_elements(shape: ModelShape) -> int:
    sides = {side for index in set(shape.layers) for side in _sides(shape.blocks[index])}
    if has_head(shape):
        sides.add((shape.hidden, shape.vocabulary))
    return sum(inputs * outputs for inputs, outputs in sides)


def _sides(block: Block) -> set[tuple[int, int]]:
    """(inputs, outputs) of a block's matrices as Megatron has them; one expert stands for all."""
    found = set()
    for roles in _JOINED:
        joined = [linear for linear in block.linears if linear.role in roles]
        if joined:
            found.add((joined[0].inputs, sum(linear.outputs for linear in joined)))
    apart = [linear for linear in block.linears if not any(linear.role in roles for roles in _JOINED)]
    return found | {(linear.inputs, linear.outputs) for linear in apart}
