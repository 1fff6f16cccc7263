"""What a training run keeps on the GPU between steps: weights, gradients, optimizer states, adapters. Bytes, before sharding."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from fullstep.job import Job, Method, Precision
from fullstep.models import Block, Linear, ModelShape
from fullstep.physics.memory.framework import HUGGING_FACE, transformers_version
from fullstep.quantities import DTYPE_BYTES

ADAPTER_KINDS_ON_LINEARS = ("lora", "qlora", "dora")


class Trainable(NamedTuple):
    """Elements that train, by what they are. ``per_block`` follows the model's layers (one entry per kind of block)."""

    base: int
    adapters: int
    modules: int
    """whole modules that train beside an adapter (``train_modules``); peft keeps the frozen original as well"""
    adapters_per_block: tuple[int, ...]

    @property
    def total(self) -> int:
        return self.base + self.adapters + self.modules


def quantized_bytes_per_weight(quantization: str, double: bool) -> float:
    """Storage of one quantized weight with its block constants [bytes].

    nf4, fp4: half a byte + one float32 per 64 weights; double: one byte per 64 and one float32 per 256 of those. int8: a byte; its row
    constants are counted by ``quantized_bytes``. gptq: half a byte + float16 scale and 4-bit zero per group of 128. mxfp4: half a byte
    + one byte per 32.

    Args:
        quantization: name of the format
        double: whether the constants are quantized too

    Returns:
        [bytes] per weight

    Source:
        Dettmers et al. 2023, QLoRA, section 3: constants of 0.5 bit become 0.127; OCP Microscaling 1.0 for mxfp4

    >>> quantized_bytes_per_weight("nf4", False)
    0.5625
    >>> round(8 * (quantized_bytes_per_weight("nf4", True) - 0.5), 3)
    0.127
    """
    if quantization in ("nf4", "fp4"):
        return 0.5 + (1 / 64 + 4 / (64 * 256) if double else 4 / 64)
    return {"int8": 1.0, "fp8": 1.0, "gptq": 0.5 + 2 / 128 + 0.5 / 128, "mxfp4": 0.5 + 1 / 32}[quantization]


def quantization_constant_bytes(linear: Linear, quantization: str, double: bool) -> float:
    """The part of bitsandbytes' 4-bit storage that is not the packed parameter: its quant_state, which no sharding divides."""
    if quantization not in ("nf4", "fp4"):
        return 0.0
    return linear.weight_elements * (quantized_bytes_per_weight(quantization, double) - 0.5)


def quantized_bytes(linear: Linear, quantization: str, double: bool) -> float:
    """Storage of one quantized linear: weights, constants, and per row (int8) or per column (gptq: g_idx) what comes with them."""
    per_copy = linear.inputs * linear.outputs * quantized_bytes_per_weight(quantization, double)
    if quantization in ("int8", "fp8"):
        per_copy += 4 * linear.outputs
    elif quantization == "gptq":
        per_copy += 4 * linear.inputs
    return linear.copies * per_copy


def is_quantized(linear: Linear, stacks_experts: bool) -> bool:
    """Experts stacked in one parameter are not replaced by 4-bit layers. Routers are: bitsandbytes replaces every linear but the head."""
    return not (linear.stacked and stacks_experts)


def adapter_elements(linear: Linear, method: Method) -> int:
    """Elements of one linear's adapter: ``rank * (inputs + outputs)``; dora adds a magnitude per output; ia3 is a vector.

    Example: rank 16 on 4096 inputs and 1024 outputs: ``16 * 5120 = 81,920``.

    Source:
        Hu et al. 2021, LoRA, section 4.1; Liu et al. 2024, DoRA; Liu et al. 2022, (IA)3
    """
    if linear.name not in method.targets or linear.stacked:
        return 0
    if method.kind == "ia3":
        return linear.copies * (linear.inputs if linear.role in ("down", "shared_down") else linear.outputs)
    if method.kind not in ADAPTER_KINDS_ON_LINEARS:
        return 0
    magnitude = linear.outputs if method.kind == "dora" else 0
    return linear.copies * (method.rank * (linear.inputs + linear.outputs) + magnitude)


def block_adapter_elements(block: Block, method: Method, hidden: int) -> int:
    """Adapter elements of one block.

    bottleneck: two projections and their biases after attention and after the feed-forward layer, ``2 * (2 h r + h + r)``.
    prefix_tuning: ``2 * rank * key_value_heads * head_dim``. Else the sum over the linears.
    """
    if method.kind == "bottleneck":
        return 2 * (2 * hidden * method.rank + hidden + method.rank)
    if method.kind == "prefix_tuning":
        return method.rank * 2 * block.attention.key_value_heads * block.attention.head_dim
    return sum(adapter_elements(linear, method) for linear in block.linears)


@lru_cache(maxsize=512)
def _trainable(shape: ModelShape, method: Method) -> Trainable:
    if method.kind == "full":
        return Trainable(shape.parameters, 0, 0, (0,) * len(shape.blocks))
    per_block = tuple(block_adapter_elements(block, method, shape.hidden) for block in shape.blocks)
    adapters = sum(per_block[index] for index in shape.layers)
    return Trainable(0, adapters, sum(whole_module_elements(shape, name) for name in method.train_modules), per_block)


def trainable(job: Job) -> Trainable:
    """What trains."""
    return _trainable(job.shape, job.method)


def whole_module_elements(shape: ModelShape, name: str) -> int:
    """Elements of a module named in ``train_modules``: embedding, head, or every linear or norm of that name."""
    if name == shape.embedding_name:
        return shape.embedding_parameters
    if name == shape.head_name:
        return shape.head_parameters or shape.embedding_parameters
    return sum(linear.parameters for index in shape.layers for linear in shape.blocks[index].linears if linear.name == name)


@lru_cache(maxsize=512)
def block_weight_bytes(block: Block, method: Method, element_bytes: int, unquantized_bytes: int, stacks_experts: bool) -> float:
    """Stored weights of one block without adapters."""
    if method.quantization == "none":
        return block.parameters * element_bytes
    size = float((block.norm_parameters + block.other_parameters) * unquantized_bytes)
    for linear in block.linears:
        if is_quantized(linear, stacks_experts):
            size += quantized_bytes(linear, method.quantization, method.double_quantization)
            size += linear.copies * linear.outputs * unquantized_bytes if linear.bias else 0
        else:
            size += linear.parameters * unquantized_bytes
    return size


def stacks_experts(job: Job) -> bool:
    """transformers keeps the experts of a block in one parameter since version 5; before, and elsewhere, they are modules."""
    return job.step.framework in HUGGING_FACE and transformers_version(job) >= (5,)


@lru_cache(maxsize=256)
def _constants(shape: ModelShape, quantization: str, double: bool, stacks: bool) -> float:
    if quantization not in ("nf4", "fp4"):
        return 0.0
    return sum(
        quantization_constant_bytes(linear, quantization, double)
        for index in shape.layers
        for linear in shape.blocks[index].linears
        if is_quantized(linear, stacks)
    )


class WeightBytes(NamedTuple):
    """Stored weights in bytes: of each kind of block, of all blocks, and of what lies outside the blocks."""

    per_block: tuple[float, ...]
    blocks: float
    outside: float
    modules: float
    adapters: float
    masters: float
    constants: float
    """of ``blocks``: quantization constants that every GPU keeps whole"""

    @property
    def total(self) -> float:
        """All weights; ``constants`` are part of ``blocks``."""
        return self.blocks + self.outside + self.modules + self.adapters + self.masters


def weight_bytes(job: Job) -> WeightBytes:
    """Everything that counts as weights, whole (before sharding)."""
    return _weight_bytes(job.shape, job.method, job.precision, stacks_experts(job))


@lru_cache(maxsize=512)
def _weight_bytes(shape: ModelShape, method: Method, precision: Precision, stacks: bool) -> WeightBytes:
    element = DTYPE_BYTES[precision.weights]
    loose = 4 if method.quantization != "none" and method.upcast_unquantized else element
    per_block = tuple(block_weight_bytes(block, method, element, loose, stacks) for block in shape.blocks)
    trains = _trainable(shape, method)
    return WeightBytes(
        per_block=per_block,
        blocks=sum(per_block[index] for index in shape.layers),
        outside=(shape.parameters - shape.block_parameters) * loose,
        modules=trains.modules * (loose if method.quantization != "none" else element),
        adapters=trains.adapters * DTYPE_BYTES[precision.adapters],
        masters=4.0 * trains.total if precision.master_weights else 0.0,
        constants=_constants(shape, method.quantization, method.double_quantization, stacks),
    )


def gradient_bytes(job: Job) -> float:
    """Gradients of all that trains, whole [bytes]: adapters in their own dtype, modules that train beside them in that of the weights."""
    trains, precision = trainable(job), job.precision
    if precision.master_weights or job.method.kind == "full":
        return float(trains.total * DTYPE_BYTES[precision.gradients])
    return float(trains.adapters * DTYPE_BYTES[precision.adapters] + trains.modules * DTYPE_BYTES[precision.weights])


def state_elements_per_parameter(name: str) -> float:
    """Full-size state tensors of an optimizer. adafactor keeps rows and columns only; see ``state_bytes``. Paged states lie outside
    torch's allocator.

    >>> state_elements_per_parameter("adamw"), state_elements_per_parameter("sgd_momentum")
    (2, 1)
    """
    return {
        "adamw": 2, "adam": 2, "sgd": 0, "sgd_momentum": 1, "adafactor": 0, "lion": 1, "muon": 1, "adamw_8bit": 2, "adamw_4bit": 2,
        "lion_8bit": 1, "paged_adamw": 0, "paged_adamw_8bit": 0, "galore": 2, "apollo": 2,
    }[name]  # fmt: skip


def matrix_sides(job: Job) -> list[tuple[int, int, int]]:
    """Weight matrices that train, as (rows, columns, how many); what is not a matrix is left out."""
    shape, method = job.shape, job.method
    found: dict[tuple[int, int], int] = {}

    def note(rows: int, columns: int, count: int) -> None:
        found[rows, columns] = found.get((rows, columns), 0) + count

    if method.kind == "full":
        note(shape.vocabulary, shape.embedding_parameters // max(1, shape.vocabulary), 1 if shape.tied else 2)
    for index in shape.layers:
        for linear in shape.blocks[index].linears:
            if method.kind == "full":
                note(linear.outputs, linear.inputs, linear.copies)
            elif linear.name in method.targets and method.kind in ADAPTER_KINDS_ON_LINEARS and not linear.stacked:
                note(method.rank, linear.inputs, linear.copies)
                note(linear.outputs, method.rank, linear.copies)
    return [(rows, columns, count) for (rows, columns), count in found.items()]


def state_element_bytes(job: Job) -> float:
    """Mean bytes per state element: modules that train beside adapters have states in the weights' dtype, unless stated otherwise."""
    trains, element = trainable(job), DTYPE_BYTES[job.optimizer.state_dtype]
    stated = "state_dtype" in job.worksheet.get("optimizer", {})
    if not trains.modules or job.precision.master_weights or stated:
        return element
    return (trains.adapters * element + trains.modules * DTYPE_BYTES[job.precision.weights]) / trains.total


def state_bytes(job: Job) -> float:
    """Optimizer states on the GPU, whole [bytes].

    adamw: two full tensors. 8 bits: a byte per element and state + float32 per block of 256. 4 bits: half a byte + float32 per 128.
    adafactor: one float32 per row and per column of each matrix. muon: one for matrices, two for embeddings, head and vectors.
    galore, apollo: two low-rank states (rank x the longer side) and galore's projection. paged: in unified memory, none here.

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
            matrices -= job.shape.embedding_parameters * (1 if job.shape.tied else 2)
        return (matrices + 2 * (total - matrices)) * element
    count = state_elements_per_parameter(optimizer.name)
    if optimizer.name in ("adamw_8bit", "lion_8bit"):
        return total * count * (1 + 4 / 256)
    if optimizer.name == "adamw_4bit":
        return total * count * (0.5 + 4 / 128)
    return total * count * element


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
