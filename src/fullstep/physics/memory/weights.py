"""What trains and what is kept of it: weights, adapters and gradients. Bytes, before sharding."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from fullstep.job import Job, Method, Precision
from fullstep.models import Block, Linear, ModelShape
from fullstep.physics.memory.framework import stacks_experts
from fullstep.physics.memory.quantization import is_quantized, quantization_constant_bytes, quantized_bytes
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


def adapter_elements(linear: Linear, method: Method) -> int:
    """Elements of one linear's adapter: ``rank * (inputs + outputs)``; dora adds a magnitude per output; ia3 is a vector.

    Gate and up of experts are two modules, ``rank * (2 * inputs + outputs)``, or one parameter with twice the rank.

    Example: rank 16 on 4096 inputs and 1024 outputs: ``16 * 5120 = 81,920``.

    Source:
        Hu et al. 2021, LoRA, section 4.1; Liu et al. 2024, DoRA; Liu et al. 2022, (IA)3
    """
    if linear.adapter_target not in method.targets:
        return 0
    if method.kind == "ia3":
        return linear.copies * (linear.inputs if linear.role in ("down", "shared_down") else linear.outputs)
    if method.kind not in ADAPTER_KINDS_ON_LINEARS:
        return 0
    magnitude = linear.outputs if method.kind == "dora" else 0
    joined = 2 if linear.is_joined_experts else 1
    inputs, outputs = linear.inputs * joined, linear.outputs * (joined if method.stacked_experts else 1)
    return linear.copies * (method.rank * (inputs + outputs) + magnitude)


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
    if not method.is_quantized:
        return block.parameters * element_bytes
    size = float((block.norm_parameters + block.other_parameters) * unquantized_bytes)
    for linear in block.linears:
        if is_quantized(linear, stacks_experts):
            size += quantized_bytes(linear, method.quantization, method.double_quantization)
            size += linear.copies * linear.outputs * unquantized_bytes if linear.bias else 0
        else:
            size += linear.parameters * unquantized_bytes
    return size


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
    loose = 4 if method.is_quantized and method.upcast_unquantized else element
    per_block = tuple(block_weight_bytes(block, method, element, loose, stacks) for block in shape.blocks)
    trains = _trainable(shape, method)
    return WeightBytes(
        per_block=per_block,
        blocks=sum(per_block[index] for index in shape.layers),
        outside=(shape.parameters - shape.block_parameters) * loose,
        modules=trains.modules * (loose if method.is_quantized else element),
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
