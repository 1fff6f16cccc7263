"""What an optimizer keeps between steps, and what its step needs besides. Bytes, before sharding."""

from __future__ import annotations

from fullstep.job import Job
from fullstep.models import ModelShape
from fullstep.physics.memory.weights import ADAPTER_KINDS_ON_LINEARS, trainable
from fullstep.quantities import DTYPE_BYTES

LEAST_PAGED_ELEMENTS = 100_000
"""bitsandbytes pages the states of tensors from this size"""


def state_elements_per_parameter(name: str) -> float:
    """Full-size state tensors of an optimizer. adafactor keeps rows and columns only; see ``state_bytes``.

    >>> state_elements_per_parameter("adamw"), state_elements_per_parameter("sgd_momentum")
    (2, 1)
    """
    return {
        "adamw": 2, "adam": 2, "sgd": 0, "sgd_momentum": 1, "adafactor": 0, "lion": 1, "muon": 1, "adamw_8bit": 2, "adamw_4bit": 2,
        "lion_8bit": 1, "paged_adamw": 2, "paged_adamw_8bit": 2, "galore": 2, "apollo": 2,
    }[name]  # fmt: skip


def matrix_sides(job: Job) -> list[tuple[int, int, int]]:
    """Weight matrices that train, as (rows, columns, how many); what is not a matrix is left out."""
    shape, method = job.shape, job.method
    found: dict[tuple[int, int], int] = {}

    def note(rows: int, columns: int, count: int) -> None:
        found[rows, columns] = found.get((rows, columns), 0) + count

    if method.kind == "full":
        width = (shape.embedding_parameters or shape.head_parameters) // max(1, shape.vocabulary)
        note(shape.vocabulary, width, _word_matrices(shape))
    for index in shape.layers:
        for linear in shape.blocks[index].linears:
            if method.kind == "full":
                note(linear.outputs, linear.inputs, linear.copies)
            elif linear.adapter_target in method.targets and method.kind in ADAPTER_KINDS_ON_LINEARS:
                joined = 2 if linear.is_joined_experts else 1
                if method.stacked_experts and linear.stacked:  # one pair for all experts
                    rank = method.rank * joined * linear.copies
                    note(rank, linear.inputs, 1)
                    note(linear.outputs, rank, 1)
                else:
                    note(method.rank, linear.inputs, linear.copies * joined)
                    note(linear.outputs // joined, method.rank, linear.copies * joined)
    return [(rows, columns, count) for (rows, columns), count in found.items()]


def _word_matrices(shape: ModelShape) -> int:
    """Embedding and output matrix, as far as this part of the model has them; a tied one is one."""
    return int(shape.embedding_parameters > 0) + int(not shape.tied and shape.head_parameters > 0)


def state_element_bytes(job: Job) -> float:
    """Mean bytes per state element: modules that train beside adapters have states in the weights' dtype, unless stated otherwise."""
    trains, element = trainable(job), DTYPE_BYTES[job.optimizer.state_dtype]
    stated = "state_dtype" in job.worksheet.get("optimizer", {})
    if not trains.modules or job.precision.master_weights or stated:
        return element
    return (trains.adapters * element + trains.modules * DTYPE_BYTES[job.precision.weights]) / trains.total


def state_bytes(job: Job) -> float:
    """Optimizer states, whole and wherever they are [bytes].

    adamw: two full tensors. 8 bits: a byte per element and state + float32 per block of 256. 4 bits: half a byte + float32 per 128.
    adafactor: one float32 per row and per column of each matrix. muon: one for matrices, two for embeddings, head and vectors.
    galore, apollo: two low-rank states (rank x the longer side) and galore's projection.

    Example: 8.03e9 bfloat16 weights: adamw ``4 * 8.03e9`` = 29.9 GiB, adamw_8bit ``2 * (1 + 4 / 256) * 8.03e9`` = 15.2 GiB.

    Source:
        Shazeer and Stern 2018 (Adafactor); Dettmers et al. 2022 (8-bit); Zhao et al. 2024 (GaLore); torch.optim, torchao.optim

    Valid:
        traces: 2.0, 1.016 and 0.53 times the weights' bytes for adamw, 8 and 4 bits; bitsandbytes keeps tensors below 4,096 elements
            in float32, which is not counted
    """
    trains, optimizer = trainable(job), job.optimizer
    total, element = trains.total, state_element_bytes(job)
    if optimizer.name in ("adafactor", "galore", "apollo"):
        return _factored_state_bytes(job, element)
    if optimizer.name == "muon":
        matrices = sum(rows * columns * count for rows, columns, count in matrix_sides(job))
        if job.method.kind == "full":
            width = (job.shape.embedding_parameters or job.shape.head_parameters) // max(1, job.shape.vocabulary)
            matrices -= job.shape.vocabulary * width * _word_matrices(job.shape)
        return (matrices + 2 * (total - matrices)) * element
    count = state_elements_per_parameter(optimizer.name)
    if optimizer.name in ("adamw_8bit", "lion_8bit", "paged_adamw_8bit"):
        return total * count * (1 + 4 / 256)
    if optimizer.name == "adamw_4bit":
        return total * count * (0.5 + 4 / 128)
    return total * count * element


def paged_state_bytes(job: Job) -> float:
    """The part of the states in unified memory, outside torch's allocator: on the GPU while there is room, on the host otherwise [bytes].

    Paged optimizers page the states of tensors from 100,000 elements; smaller ones and the scales of 8-bit states stay on the GPU.
    An adapter of rank 16 on 4,096 features has 65,536 elements: nothing of it is paged.

    Source:
        bitsandbytes/optim/optimizer.py, get_state_buffer and init_state
    """
    optimizer = job.optimizer
    if not optimizer.name.startswith("paged_"):
        return 0.0
    elements = sum(rows * columns * count for rows, columns, count in matrix_sides(job) if rows * columns >= LEAST_PAGED_ELEMENTS)
    return elements * 2 * (1 if optimizer.name == "paged_adamw_8bit" else state_element_bytes(job))


def _factored_state_bytes(job: Job, element: float) -> float:
    trains = trainable(job)
    sides = matrix_sides(job)
    matrices = sum(rows * columns * count for rows, columns, count in sides)
    vectors = max(0, trains.total - matrices)
    if job.optimizer.name == "adafactor":
        return 4.0 * (sum((rows + columns) * count for rows, columns, count in sides) + vectors)
    size = 0.0
    for rows, columns, count in sides:
        rank = min(job.method.rank, rows, columns)
        projection = rank * min(rows, columns) if job.optimizer.name == "galore" else 0
        size += count * (2 * rank * max(rows, columns) + projection)
    return (size + 2 * vectors) * element


def optimizer_temporaries_bytes(job: Job, trained_bytes: float, largest_bytes: float) -> float:
    """What the optimizer step needs besides [bytes].

    foreach AdamW: the square roots of all second moments at once, ``trained_bytes``. Single tensor: two of the largest. fused, sgd, 8-bit
    and paged: none. Lion: one of the largest. muon: three of the largest in its Newton-Schulz products. adafactor: four float32 copies
    of the largest (two where it is float32). deepspeed: the float32 copy of the gradient shard is counted with the gradients.

    Args:
        job: the optimizer and its implementation
        trained_bytes: parameters that this GPU updates [bytes]
        largest_bytes: the largest tensor of them [bytes]

    Returns:
        [bytes], beside weights, gradients and states

    Source:
        torch.optim (_multi_tensor_adam, _single_tensor_adam), transformers.optimization.Adafactor

    Valid:
        foreach AdamW to the byte on published runs; the rest on traces (torch 2.13) within a few percent of the temporaries; galore and
            apollo by derivation
    """
    optimizer = job.optimizer
    if optimizer.in_backward:
        return 2 * largest_bytes if optimizer.implementation in ("foreach", "single") and optimizer.name in ("adamw", "adam") else 0
    if optimizer.name in ("adamw", "adam"):
        if optimizer.implementation == "foreach":
            return trained_bytes
        return 2 * largest_bytes if optimizer.implementation == "single" else 0
    if optimizer.name in ("lion", "muon"):
        return 3 * largest_bytes if optimizer.name == "muon" else largest_bytes
    if optimizer.name == "adafactor":  # transformers' own: float32 gradient, square, update and parameter of one tensor at a time
        elements = trainable(job).total * largest_bytes / trained_bytes if trained_bytes else 0.0
        copies = 2 if trained_bytes >= 4 * trainable(job).total else 4  # a float32 tensor and its gradient need no copy
        return 4.0 * copies * elements
    if optimizer.name in ("galore", "apollo"):
        return 3 * largest_bytes
    return 0
