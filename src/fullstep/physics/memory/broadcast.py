"""What DDP holds for a moment when it is made: the first rank's values on their way to the others, in flat pieces."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise

from fullstep.job import Job
from fullstep.models import ModelShape
from fullstep.physics.checkpointing.tensors import tensors_in_order, trained_tensors
from fullstep.physics.memory.framework import stacks_experts
from fullstep.physics.memory.quantization import is_quantized, quantization_constant_bytes, quantized_bytes
from fullstep.quantities import DTYPE_BYTES, MIB

PIECE_BYTES = 250 * MIB
"""broadcast_bucket_size of torch's DDP"""


def broadcast_bytes(job: Job) -> float:
    """The most that two pieces in flight hold on one GPU [bytes], of tensors in the order of the model, dtype by dtype.

    A piece ends with the tensor by which it reaches 250 MiB; one of a single tensor is a view of it, and holds nothing.

    Example: Llama-3.1-8B in bfloat16: the embedding alone (a view), then pieces of about 300 MiB; the last two, 272 and 1114 MiB with the
    head, are the most: 1386 MiB.

    Source:
        torch 2.13, nn/parallel/distributed.py (_sync_module_states), csrc/distributed/c10d/comm.cpp (broadcast_coalesced, two in
        flight), reducer.cpp (compute_bucket_assignment_by_size)
    """
    method, precision = job.method, job.precision
    loose = 4 if method.is_quantized and method.upcast_unquantized else DTYPE_BYTES[precision.weights]
    base = _base(job.shape, method.quantization if method.is_quantized else "", loose, stacks_experts(job))
    if method.kind == "full":
        return base
    element = DTYPE_BYTES[precision.adapters]
    return max(base, most_of_two(each.elements * element for each in trained_tensors(job) for _ in range(each.copies)))


@lru_cache(maxsize=256)
def _base(shape: ModelShape, packed_as: str, element_bytes: float, stacks: bool) -> float:
    """Of the model's own tensors. Packed ones are of another dtype; their constants are no parameters, and are not sent."""
    plain, packed = [], []
    for linear, each in tensors_in_order(shape):
        if linear is not None and packed_as and is_quantized(linear, stacks):
            constants = quantization_constant_bytes(linear, packed_as, False)
            packed += [(quantized_bytes(linear, packed_as, False) - constants) / each.copies] * each.copies
        else:
            plain += [each.elements * element_bytes] * each.copies
    return max(most_of_two(plain), most_of_two(packed))


def most_of_two(sizes_bytes: Iterable[float]) -> float:
    """Of pieces that follow one another, the two that hold most [bytes].

    >>> most_of_two([300 * MIB, 100 * MIB, 160 * MIB, 40 * MIB, 20 * MIB]) / MIB
    320.0
    """
    held, tensors, size = [0.0], 0, 0.0
    for each in sizes_bytes:
        if each:
            tensors, size = tensors + 1, size + each
        if size >= PIECE_BYTES:
            held.append(size if tensors > 1 else 0.0)
            tensors, size = 0, 0.0
    held.append(size if tensors > 1 else 0.0)
    return max(one + other for one, other in pairwise(held))
