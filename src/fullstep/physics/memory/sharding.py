"""How state is divided over the data-parallel ranks, and what is put together again while a step runs. Sharding is not division."""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

from fullstep.job import Job
from fullstep.models import Block
from fullstep.physics.memory.cut import experts_of
from fullstep.physics.memory.framework import stacks_experts
from fullstep.physics.memory.weights import Trainable, WeightBytes, adapter_elements
from fullstep.quantities import DTYPE_BYTES

DEEPSPEED_BUCKET_ELEMENTS = 500_000_000
"""reduce_bucket_size of DeepSpeed's configuration, in elements"""
DEEPSPEED_MAX_LIVE_PARAMETERS = 1_000_000_000
"""stage3_max_live_parameters"""
DEEPSPEED_SUB_GROUP_ELEMENTS = 1_000_000_000
"""sub_group_size: elements that stage 3 steps at a time"""


class Units(NamedTuple):
    """FSDP's units, in bytes per GPU while gathered: the root (all outside the blocks) and each kind of block."""

    root: float
    blocks: tuple[float, ...]
    block_gradients: tuple[float, ...]
    """unsharded gradients of one unit in the dtype in which it computes"""
    block_padding: tuple[float, ...]
    """bytes that travel per byte of a unit (see ``unit_padding``)"""
    root_gradients: float
    reduce_factor: float
    """bytes of the reduce dtype per byte of such a gradient"""


class Reduction(NamedTuple):
    """Gradients of one of FSDP's units while they are reduced, in bytes on this GPU; all 0 where nothing is divided into units."""

    whole: float = 0.0
    """all of them, as backward makes them"""
    buffer: float = 0.0
    """in which they are handed over, in the reduce dtype; 0 where they are handed over themselves"""
    summed: float = 0.0
    """this rank's part of the sum in the reduce dtype, where gradients have another one"""
    part: float = 0.0
    """the same as the gradients that stay"""
    lingering: float = 0.0
    """of the whole ones, what is held until the reduction has returned"""
    sum_stays: float = 0.0
    """of the sum, what is held until backward has ended"""
    piled: float = 0.0
    """all of them, as they pile up over micro-batches that are not reduced"""
    is_flat: bool = False
    """they are one tensor, which is put together out of single ones beside it (FSDP1)"""


class Shares(NamedTuple):
    """Bytes on one GPU between steps."""

    weights: float
    gradients: float
    optimizer_states: float
    trained: float
    """bytes of what the optimizer updates on this GPU, in its own dtype"""


def shares(job: Job, weights: WeightBytes, gradients: float, states: float, trains: Trainable) -> Shares:
    """What each GPU keeps between steps [bytes]: parameters / shards where parameters are divided, and so on by strategy.

    ddp: nothing is divided. zero1: states and masters. zero2: gradients too. zero3, fsdp: weights too. layer_split: whole blocks.
    4-bit weights are divided by FSDP (the packed part, through its storage dtype; block constants are no parameters) and not by ZeRO-3.

    Example: 8.03e9 parameters in bfloat16 with bfloat16 Adam under fsdp over 8: ``2 / 8 + 2 / 8 + 4 / 8`` = 1 byte per parameter, 7.5 GiB.

    Args:
        job: layout and dtypes
        weights: whole [bytes]
        gradients: whole [bytes]
        states: whole [bytes]
        trains: elements that train

    Returns:
        the share of the worst GPU [bytes]

    Source:
        Rajbhandari et al. 2020, ZeRO, figure 1; torch.distributed.fsdp; bitsandbytes, Params4bit quant_storage

    Valid:
        padding of shards to equal sizes is not counted (below 0.1 % of models of this size)
    """
    layout, precision = job.layout, job.precision
    shards = max(1, layout.shards)
    strategy = layout.strategy
    plain = weights.total - weights.masters
    masters = 0.0 if layout.offload_optimizer else weights.masters / shards
    if layout.offload_optimizer:  # ZeRO-Offload moves each reduced gradient to the host, where the step is made
        gradients = states = 0.0
    trained = 4.0 * trains.total if precision.master_weights else _trained_bytes(job, trains)
    if strategy in ("single", "ddp"):
        return Shares(plain + masters, gradients, states, trained)
    if strategy == "layer_split":
        return _layer_split(job, weights, gradients, states, trained)
    parameters = shards if job.layout.divides_parameters else 1
    dealt = dealt_experts(job, weights, trains)
    whole = weights.constants
    if strategy == "zero3" and job.method.is_quantized:
        whole = weights.blocks + weights.outside
    elif parameters > 1 and replicates_adapters(job):
        whole += weights.adapters
    copied = trains.adapters / trains.total if parameters > 1 and replicates_adapters(job) else 0.0
    split = copied + (1 - copied) / shards * dealt.trained
    return Shares(
        whole + (plain - whole) / parameters * (dealt.weights if parameters > 1 else 1) + masters * dealt.trained,
        gradients * (split if strategy != "zero1" else 1),
        states * split,
        trained * split,
    )


class DealtExperts(NamedTuple):
    """How many times more than ``1 / shards`` of it a rank keeps, because of its experts (see ``dealt_experts``)."""

    weights: float
    trained: float


def dealt_experts(job: Job, weights: WeightBytes, trains: Trainable) -> DealtExperts:
    """Experts that are dealt out over e ranks are divided further among ``shards / e`` of them only: a share of ``e / shards``.
    Stacked ones are divided one by one (see ``unit_padding``).

    With x the experts' share of what the rank has: ``1 + x * (min(e, shards) - 1)`` times ``1 / shards``.

    Example: half of the rank's weights are experts, 4 ranks deal them, 8 shards: ``(1 + 0.5 * 3) / 8``, 31 % instead of 12.5 %.

    Args:
        job: one rank's
        weights: one rank's, before sharding [bytes]
        trains: elements that train

    Returns:
        factors for weights and for all that trains

    Source:
        torchtitan, models/llama4/infra/parallelize.py (experts on the mesh dp_mod_ep); Megatron-LM, expert_data_parallel_group

    Valid:
        exact where the shards are a multiple of the expert ranks
    """
    among = min(job.layout.expert, max(1, job.layout.shards))
    shape = job.shape
    layers = [shape.blocks[index] for index in shape.layers]
    more = sum((unit_padding(job, block) - 1) * block.parameters for block in layers) / shape.parameters
    full = job.method.kind == "full"
    if among == 1:
        return DealtExperts(1 + more, 1 + more if full else 1.0)
    experts = sum(linear.parameters for block in layers for linear in experts_of(block))
    stored = experts / shape.parameters
    trained = stored
    if not full:
        adapters = sum(adapter_elements(linear, job.method) for block in layers for linear in experts_of(block))
        trained = adapters / max(1, trains.total)
    return DealtExperts(1 + stored * (among - 1) + more, 1 + trained * (among - 1) + (more if full else 0))


def unit_padding(job: Job, block: Block) -> float:
    """Bytes that FSDP2 divides per byte of a block: it divides each parameter along its first dimension, and makes all shares as large as
    the largest. Stacked experts have theirs there: with E of them over n shards a rank keeps ``ceil(E / n)``, and n times that travels.

    Example: the 8 experts of Mixtral over 16 shards are 1 for each of 8 ranks and nothing for the others: twice what 1 / 16 would be.

    Source:
        torch 2.13, distributed/fsdp/_fully_shard/_fsdp_param.py, _init_sharded_param (Shard(0), padded_sharded_size); transformers 5 stacks
        experts; traces

    Valid:
        other parameters have thousands of rows, and padding them is left out (below 0.1 %)
    """
    shards = job.layout.shards
    if not (job.layout.is_fsdp and job.layout.implementation == "fsdp2" and shards > 1 and stacks_experts(job)):
        return 1.0
    stacked = [linear for linear in experts_of(block) if linear.stacked]
    more = sum(linear.parameters * (ceil(linear.copies / shards) * shards / linear.copies - 1) for linear in stacked)
    return 1 + more / block.parameters


def _trained_bytes(job: Job, trains: Trainable) -> float:
    weights = DTYPE_BYTES[job.precision.weights]
    return float((trains.base + trains.modules) * weights + trains.adapters * DTYPE_BYTES[job.precision.adapters])


def replicates_adapters(job: Job) -> bool:
    """fms_acceleration leaves the adapters of a quantized base out of FSDP and reduces their gradients as DDP does."""
    return job.step.framework == "fms_acceleration" and job.method.is_quantized


def _layer_split(job: Job, weights: WeightBytes, gradients: float, states: float, trained: float) -> Shares:
    """A naive device_map: the last GPU has its part of the blocks and the head (the first the embedding)."""
    gpus = max(1, job.machine.gpus)
    outside_share = max(job.shape.embedding_parameters, job.shape.head_parameters or job.shape.embedding_parameters)
    outside = weights.outside * outside_share / max(1, job.shape.parameters - job.shape.block_parameters)
    blocks = -(-len(job.shape.layers) // gpus) / max(1, len(job.shape.layers))
    share = (weights.blocks * blocks + outside) / max(1.0, weights.blocks + weights.outside)
    rest = weights.modules + weights.adapters + weights.masters
    return Shares(weights.blocks * blocks + outside + rest * share, gradients * share, states * share, trained * share)


def units(job: Job, weights: WeightBytes, trains: Trainable) -> Units:
    """What FSDP gathers: each block as a unit, and the root with all that lies outside the blocks [bytes].

    In the compute dtype where mixed precision is on (accelerate, torchtitan), as stored where it is not. A quantized unit travels as
    it is stored.

    Example: Llama-3.1-8B's root, embedding + norm + head in bfloat16: ``2 * (2 * 525,336,576 + 4096)``, 1.96 GiB.

    Source:
        torch.distributed.fsdp, MixedPrecisionPolicy; accelerate's wrapping by block class
    """
    shape, precision = job.shape, job.precision
    stored = DTYPE_BYTES[precision.weights]
    gathered = min(stored, DTYPE_BYTES[precision.compute] if precision.compute != "fp8" else 2)
    ratio = 1.0 if job.method.is_quantized else gathered / stored
    adapter = DTYPE_BYTES[precision.adapters]
    adapter_gathered = min(adapter, gathered)
    padding = tuple(unit_padding(job, block) for block in shape.blocks)
    blocks = tuple(
        size * ratio * pad + count * (0 if replicates_adapters(job) else adapter_gathered)
        for size, pad, count in zip(weights.per_block, padding, trains.adapters_per_block, strict=True)
    )
    if job.method.kind == "full":
        gradients = tuple(float(block.parameters * gathered) for block in shape.blocks)
        root_gradients = float((shape.parameters - shape.block_parameters) * gathered)
    else:
        gradients = tuple(float(count * adapter_gathered) for count in trains.adapters_per_block)
        root_gradients = float(trains.modules * gathered)
    upcast = job.method.is_quantized and job.method.upcast_unquantized
    root = weights.outside * (gathered / DTYPE_BYTES["float32"] if upcast and job.layout.is_fsdp else 1.0 if upcast else ratio)
    return Units(
        root=root + weights.modules * ratio,
        blocks=blocks,
        block_gradients=gradients,
        block_padding=padding if job.method.kind == "full" else (1.0,) * len(padding),
        root_gradients=root_gradients,
        reduce_factor=DTYPE_BYTES[precision.reduce] / (gathered if job.method.kind == "full" else adapter_gathered),
    )


def reduction(job: Job, whole: float, factor: float, *, last: float = 0.0, padding: float = 1.0) -> Reduction:
    """Of one of FSDP's units. Both hand over a copy in the reduce dtype, take this rank's part of the sum, and cast that to the dtype
    of the gradients where it is another one.

    FSDP2 lets go of the whole gradients once they are copied, but for the last one, which its loop still names; where replicas sum up
    besides (HSDP), it holds on to each part in the reduce dtype until backward has ended. FSDP1 has one flat gradient, which autograd
    puts together out of single ones, and which autograd holds until the hook that reduces it has returned; without another dtype it
    is handed over itself.

    Example: 16e6 elements in bfloat16, reduced in float32 over 2: whole 32, buffer 64, sum 32, part 16 MB; FSDP1: 32 MB linger.

    Args:
        job: the job
        whole: gradients of the unit as backward makes them [bytes]
        factor: bytes of the reduce dtype per byte of such a gradient
        last: of ``whole``, the gradient of the unit's last parameter [bytes]
        padding: bytes that are handed over per byte (see ``unit_padding``)

    Source:
        torch 2.13, distributed/fsdp/_fully_shard/_fsdp_collectives.py, foreach_reduce (``unsharded_grad`` and ``all_reduce_input``, since
        2.6); distributed/fsdp/_runtime_utils.py, _post_backward_hook; csrc/autograd/engine.cpp, call_function (``inputs_copy``); traces
    """
    layout, precision = job.layout, job.precision
    if not layout.is_fsdp:
        return Reduction()
    fsdp2 = layout.implementation == "fsdp2"
    handed_over = whole * factor * padding
    ratio = DTYPE_BYTES[precision.gradients] / DTYPE_BYTES[precision.reduce]
    summed = handed_over / max(1, layout.shards)
    cast = 0.0 if ratio == 1 else summed
    return Reduction(
        whole=whole,
        buffer=handed_over if fsdp2 or factor != 1 else 0.0,
        summed=cast,
        part=summed * ratio,
        lingering=(last if layout.shards > 1 else 0.0) if fsdp2 else whole,
        sum_stays=cast if fsdp2 and layout.strategy == "hsdp" else 0.0,
        piled=whole * factor if fsdp2 else whole,
        is_flat=not fsdp2,
    )
