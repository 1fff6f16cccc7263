"""What of a model one rank moves: units of weights that are gathered and gradients that are reduced, cut by tensor, pipeline and expert."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import NamedTuple

from fullstep.job import Job
from fullstep.job.habits import HUGGING_FACE
from fullstep.models import Block, ModelShape
from fullstep.physics.memory.cut import expert_parameters
from fullstep.physics.memory.framework import is_reentrant, stacks_experts
from fullstep.physics.memory.landmarks import landmarks
from fullstep.physics.memory.quantization import is_quantized, quantization_constant_bytes
from fullstep.physics.memory.rank import stage_layers
from fullstep.physics.memory.sharding import units
from fullstep.physics.memory.weights import trainable, weight_bytes
from fullstep.quantities import DTYPE_BYTES

OWN_EMBEDDING_UNIT = frozenset((*HUGGING_FACE, "torchtitan")) - {"fms_acceleration"}
"""frameworks under which FSDP2 makes an embedding that is not the head a unit of its own (accelerate from 1.15, torchtitan)"""


class Unit(NamedTuple):
    """Weights that travel together, ``copies`` times alike. Bytes of one, over all ranks of the group that shares it."""

    what: str
    gathered_bytes: float
    """as it travels to be computed with"""
    trained_elements: float
    copies: int
    recomputed: int = 0
    """of ``copies``, blocks whose forward runs again in backward"""
    experts: bool = False
    """it lies only on the ranks of one slice of an expert-parallel group"""


class Stage(NamedTuple):
    """The pipeline stage that moves most."""

    layers: tuple[int, ...]
    embedding: bool
    head: bool


@lru_cache(maxsize=512)
def worst_stage(shape: ModelShape, layers: tuple[int, ...]) -> Stage:
    """The stage with most parameters, of stages with so many blocks each.

    Example: 32 equal blocks on 4 stages: the last, with 8 blocks and the head.

    Source:
        Narayanan et al. 2021, Efficient large-scale language model training on GPU clusters, section 2.2
    """
    ends = [0, *accumulate(layers)]
    last = len(layers) - 1
    stages = [Stage(shape.layers[start:end], number == 0, number == last) for number, (start, end) in enumerate(pairwise(ends))]
    head = shape.head_parameters or shape.embedding_parameters

    def size(stage: Stage) -> int:
        outside = shape.embedding_parameters * stage.embedding + head * stage.head
        return outside + sum(shape.blocks[kind].parameters for kind in stage.layers)

    return max(reversed(stages), key=size)


def stage_of(job: Job) -> Stage:
    """The stage whose traffic is counted."""
    return worst_stage(job.shape, stage_layers(job))


def tensor_share(block: Block, tensor: int) -> float:
    """Share of a block's parameters on one of ``tensor`` ranks: matrices are cut, ``1 / tensor``; norms and the rest are on every rank.

    Source:
        Shoeybi et al. 2019, Megatron-LM, section 3
    """
    return (block.linear_parameters / tensor + block.parameters - block.linear_parameters) / block.parameters


def checkpointed_blocks(job: Job, stage: Stage) -> dict[int, int]:
    """How many blocks of each kind run their forward again in backward."""
    setting = job.step.activation_checkpointing
    if setting in ("none", "selective"):
        return {}
    _, counts = landmarks(stage.layers, setting)
    return {kind: count for kind, checkpointed, count in counts if checkpointed}


def gathers_again_to_recompute(job: Job) -> bool:
    """Whether recomputation gathers a unit that backward then gathers once more: reentrant checkpointing around FSDP's unit.

    Its first forward runs without a graph, so FSDP's backward hooks hang on the recomputed outputs only, and the recomputed forward lets go
    of the unit before they fire. Otherwise the unit is there already when recomputation begins.

    Source:
        torch.distributed.fsdp._runtime_utils, _post_forward and _register_pre_backward_hooks; accelerate's FSDP guide, which warns of it
    """
    return job.layout.is_fsdp and is_reentrant(job)


def reduce_bytes(job: Job) -> int:
    """Bytes per gradient element as ranks reduce it."""
    return DTYPE_BYTES[job.precision.reduce]


def whole_units(job: Job) -> tuple[Unit, ...]:
    """Units of the worst rank: embedding (where it is one of its own), each kind of block, its experts, and the root with the rest.

    Bytes that travel follow ``units`` of the memory estimate; constants of 4-bit weights do not travel, and ZeRO-3 leaves a quantized base
    whole on every GPU, so that only its adapters travel.

    Example: Llama-3.1-8B in bfloat16: 32 blocks of 436,224,000 bytes; embedding and head 1,050,673,152 each.

    Args:
        job: the job

    Returns:
        units in the order of forward, in bytes and elements before sharding
    """
    layout, shape, stage = job.layout, job.shape, stage_of(job)
    trains, weights = trainable(job), weight_bytes(job)
    travels = units(job, weights, trains)
    whole_base = layout.strategy == "zero3" and job.method.is_quantized
    full = job.method.kind == "full"
    again = checkpointed_blocks(job, stage)
    found: list[Unit] = []
    for kind, count in Counter(stage.layers).items():
        block = shape.blocks[kind]
        elements = block.parameters if full else trains.adapters_per_block[kind]
        base = weights.per_block[kind] if whole_base else constant_bytes(job, block)
        size = max(0.0, travels.blocks[kind] - base)
        found += _block_units(job, block, Unit(shape.blocks[kind].label, size, elements, count, again.get(kind, 0)))
    outside = shape.parameters - shape.block_parameters
    root = weights.modules if whole_base else travels.root
    root_elements = outside if full else trains.modules
    return _with_root(job, stage, found, Unit("the root", root, root_elements, 1))


def constant_bytes(job: Job, block: Block) -> float:
    """Constants of a block's 4-bit weights, which every GPU keeps [bytes]."""
    method, stacks = job.method, stacks_experts(job)
    if method.quantization not in ("nf4", "fp4"):
        return 0.0
    return sum(
        quantization_constant_bytes(linear, method.quantization, method.double_quantization)
        for linear in block.linears
        if is_quantized(linear, stacks)
    )


def _block_units(job: Job, block: Block, whole: Unit) -> list[Unit]:
    """A block's unit cut by tensor ranks, and under expert parallelism its experts apart."""
    share = tensor_share(block, job.layout.tensor)
    routed = expert_parameters(block) / block.parameters if job.layout.expert > 1 else 0.0
    rest = (1 - routed) * share
    named = whole._replace(what="a block", gathered_bytes=whole.gathered_bytes * rest, trained_elements=whole.trained_elements * rest)
    if not routed:
        return [named]
    part = routed * share / job.layout.expert
    size, elements = whole.gathered_bytes * part, whole.trained_elements * part
    return [named, Unit("experts of a block", size, elements, whole.copies, whole.recomputed, True)]


def _with_root(job: Job, stage: Stage, blocks: list[Unit], root: Unit) -> tuple[Unit, ...]:
    """The root in front of the blocks (it is gathered first), or the embedding there and the rest behind them."""
    shape, layout = job.shape, job.layout
    outside = max(1, shape.parameters - shape.block_parameters)
    embedding = shape.embedding_parameters / outside
    here = (embedding if stage.embedding else 0.0) + (1 - embedding if stage.head else 0.0)
    if shape.tied and stage.head:
        here = 1.0
    own = stage.embedding and not shape.tied and has_embedding_unit(job)
    if not own:
        return (_scaled(root, here / layout.tensor), *blocks)
    first = _scaled(root._replace(what="the embedding"), embedding / layout.tensor)
    return (first, *blocks, _scaled(root._replace(what="norm and head"), (here - embedding) / layout.tensor))


def _scaled(unit: Unit, factor: float) -> Unit:
    return unit._replace(gathered_bytes=unit.gathered_bytes * factor, trained_elements=unit.trained_elements * factor)


def has_embedding_unit(job: Job) -> bool:
    """Whether an untied embedding is gathered on its own: FSDP2 in accelerate from 1.15 and in torchtitan; ZeRO-3 gathers by module.

    Source:
        accelerate 1.15, utils/fsdp_utils.py fsdp2_prepare_model; torchtitan, models/llama3/parallelize.py; DeepSpeed,
        runtime/zero/parameter_offload.py
    """
    own = job.layout.implementation == "fsdp2" and job.step.framework in OWN_EMBEDDING_UNIT
    return own or job.layout.strategy == "zero3"
