"""Everything that the walk through a step needs to know of a job, in bytes on one GPU."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import ceil

from fullstep.job import Job
from fullstep.job.habits import prefetches_units
from fullstep.models import Block, ModelShape
from fullstep.physics.memory.besides import (
    behind_embedding_gradient,
    buffer_bytes,
    float32_gradients,
    gradients_until_the_step,
    step_temporaries,
)
from fullstep.physics.memory.block import block_profile
from fullstep.physics.memory.choices import (
    FUSED_KERNELS,
    adapter_kernels,
    block_kernels,
    compute_bytes,
    loss_habit,
    residual_bytes,
)
from fullstep.physics.memory.cut import has_head
from fullstep.physics.memory.framework import is_reentrant, output_bytes_per_logit, stacks_experts
from fullstep.physics.memory.head import LossHabit, head_profile
from fullstep.physics.memory.kernels import Kernels
from fullstep.physics.memory.megatron import keeps_gradient_buffers
from fullstep.physics.memory.rank import is_sequence_parallel
from fullstep.physics.memory.scene import BlockCosts, RootCosts, Scene, empty_head
from fullstep.physics.memory.sharding import (
    DEEPSPEED_MAX_LIVE_PARAMETERS,
    Shares,
    Units,
    reduction,
)
from fullstep.physics.memory.weights import ADAPTER_KINDS_ON_LINEARS, Trainable, adapter_elements
from fullstep.quantities import DTYPE_BYTES


def scene_of(job: Job, held: Shares, gathered: Units, trains: Trainable) -> Scene:
    """The scene of one step: profiles of blocks and head, and what is divided, gathered, offloaded and kept.

    Args:
        job: the job
        held: what this GPU keeps between steps [bytes]
        gathered: FSDP's units [bytes]
        trains: elements that train

    Returns:
        all that ``walk_step`` needs [bytes]
    """
    layout = job.layout
    shape = _last_part(job.shape, job.machine.gpus) if layout.strategy == "layer_split" else job.shape
    sharded = layout.is_fsdp
    gradients = gradients_until_the_step(job, held, trains)
    sent_away = layout.offload_parameters and sharded  # each reduced gradient goes to the host
    per_element = gradients / trains.total if trains.total and not sent_away else 0.0
    behind = behind_embedding_gradient(job)
    offloads_state = layout.offload_optimizer or (layout.offload_parameters and sharded)
    whole = _gathered_whole(job, gathered, shape)
    kernels = [block_kernels(job, block).in_one_row() for block in shape.blocks]
    return Scene(
        shape=shape,
        checkpointing=job.step.activation_checkpointing,
        stream=_stream(job),
        weights=0.0 if layout.offload_parameters else held.weights,
        optimizer_states=0.0 if offloads_state else held.optimizer_states,
        gradients=0.0 if sent_away else gradients + behind,
        buffers=buffer_bytes(job, held, trains),
        blocks=tuple(
            _block_costs(
                job, index, runs_with, gathered, gathered_whole=whole, gradients_left=_trained_elements(job, trains, index) * per_element
            )
            for index, runs_with in enumerate(kernels)
        ),
        root=_root_costs(job, shape, gathered, kernels[-1], per_element=per_element),
        sharded=sharded,
        caches_copies=job.method.kind == "full",
        gathered_whole=whole,
        prefetches=sharded and prefetches_units(job),
        copies_out=sharded and layout.implementation == "fsdp2",
        reentrant=is_reentrant(job),
        retains_inputs=retains_inputs(job),
        offloads_activations=job.step.activation_offload,
        offloaded_weights=held.weights if layout.offload_parameters else 0.0,
        step_temporaries=step_temporaries(job, held, trains),
        extra_step_gradients=float32_gradients(job, trains),
        step_gradients=0.0 if sent_away else min(gradients, held.gradients) + behind,
        exchanged=max((_exchanged(job, block, runs_with) for block, runs_with in zip(shape.blocks, kernels, strict=True)), default=0.0),
        permanent_gradients=keeps_gradient_buffers(job),
    )


def _exchanged(job: Job, block: Block, kernels: Kernels) -> float:
    """What a divided row adds to a block's peak in backward [bytes]."""
    if kernels.context == 1:
        return 0.0
    alone = block_profile(block, kernels._replace(context=1), job.shape.hidden)
    return block_profile(block, kernels, job.shape.hidden).backward_peak - alone.backward_peak


def _stream(job: Job) -> float:
    """One tensor between blocks on this rank [bytes]."""
    tokens = -(-job.batch.tokens // job.layout.tensor) if is_sequence_parallel(job) else job.batch.tokens
    return float(tokens * job.shape.hidden * residual_bytes(job))


def _root_costs(job: Job, shape: ModelShape, gathered: Units, kernels: Kernels, *, per_element: float) -> RootCosts:
    """``per_element``: bytes that a trained element's gradient leaves behind until the step."""
    compute, habit, sharded = compute_bytes(job), loss_habit(job), job.layout.is_fsdp
    elements = shape.head_parameters or shape.embedding_parameters
    makes_logits = has_head(shape)
    if not makes_logits:
        habit = habit._replace(trains_head=False)
    made = compute if sharded or keeps_gradient_buffers(job) else DTYPE_BYTES[job.precision.gradients]
    trains_embedding = job.method.kind == "full" or shape.embedding_name in job.method.train_modules
    head = float(elements * made) if habit.trains_head and not keeps_gradient_buffers(job) else 0.0
    embedding = float(shape.embedding_parameters * made) if trains_embedding and _embedding_is_apart(job, shape) else 0.0
    norm_is_last = job.method.kind == "full" and shape.tied
    return RootCosts(
        head=head_profile(shape, _head_kernels(job, shape, kernels), habit) if makes_logits else empty_head(),
        copies=float(elements * compute) if makes_logits and _head_is_copied(job, compute) else 0.0,
        gathered=gathered.root + _gathered_in_part(job, gathered, shape) if sharded else 0.0,
        unit=gathered.root if sharded else 0.0,
        reduction=reduction(job, gathered.root_gradients, gathered.reduce_factor, last=0.0 if norm_is_last else head or embedding),
        gradients_left=elements * _head_gradient_kept(job, per_element) if habit.trains_head else 0.0,
        head_gradient=head,
        embedding_gradient=embedding,
        tied_sum=float(elements * made) if _sums_tied(job, shape, habit, compute) else 0.0,
        held_outputs=_held_outputs(job, shape),
    )


def _embedding_is_apart(job: Job, shape: ModelShape) -> bool:
    """Its gradient is made beside all others, not simply one of them."""
    return shape.tied or job.layout.is_fsdp or keeps_gradient_buffers(job)


def _sums_tied(job: Job, shape: ModelShape, habit: LossHabit, compute: int) -> bool:
    """Whether the gradients of a tied head and embedding are summed into a third tensor.

    The head's is a transposed view of a product, and autograd only adds in place where nobody else holds the storage. Autocast's copy
    back to float32 is a tensor of its own.
    Source: torch/csrc/autograd/input_buffer.cpp, can_accumulate_inplace; seen on real tensors of torch 2.13.
    """
    tied = shape.tied and job.method.kind == "full" and habit.trains_head
    return tied and habit.kernel == "standard" and not job.optimizer.in_backward and not _head_is_copied(job, compute)


def _held_outputs(job: Job, shape: ModelShape) -> float:
    """Logits that the caller holds during backward; a fused loss makes none."""
    if not job.step.keeps_outputs or job.step.loss == "fused" or not has_head(shape):
        return 0.0
    words = shape.vocabulary * loss_habit(job).gathered_from
    return float(job.batch.tokens * words * output_bytes_per_logit(job, compute_bytes(job)))


def _head_kernels(job: Job, shape: ModelShape, kernels: Kernels) -> Kernels:
    """Those of the last block; a tied head's gradient waits for the embedding's, also where the optimizer's step is part of backward."""
    if job.optimizer.in_backward and shape.tied:
        return kernels._replace(new_gradient=DTYPE_BYTES[job.precision.gradients], gradient_work=0)
    return kernels


def _head_gradient_kept(job: Job, per_element: float) -> float:
    """Bytes per element of the output matrix's gradient between its own backward and the end."""
    if job.layout.is_fsdp:
        return compute_bytes(job)
    return DTYPE_BYTES[job.precision.gradients] if job.optimizer.in_backward and job.shape.tied else per_element


def _block_costs(job: Job, index: int, kernels: Kernels, units: Units, *, gathered_whole: float, gradients_left: float) -> BlockCosts:
    block = job.shape.blocks[index]
    compute = compute_bytes(job)
    sharded = job.layout.is_fsdp
    return BlockCosts(
        profile=block_profile(block, kernels, job.shape.hidden),
        selective_kept=_selective_kept(job, block, compute),
        gathered=units.blocks[index] if sharded and not gathered_whole else 0.0,
        unit=units.blocks[index] if sharded else 0.0,
        reduction=reduction(job, units.block_gradients[index], units.reduce_factor, padding=units.block_padding[index]),
        gradients_left=gradients_left,
        copies=_copied_elements(job, block) * compute if _copies_weights(job, compute) else 0.0,
        adapter_copies=_adapter_copies(job, block, compute),
    )


def _adapter_copies(job: Job, block: Block, compute: int) -> float:
    """Autocast's copies of one block's low-rank adapters. FSDP has gathered them in the compute dtype, a fused kernel takes them as they
    are, and what is added to a parameter instead of a product (``changed_parameter``) is cast there."""
    copied = job.precision.autocast and DTYPE_BYTES[job.precision.adapters] > compute and not job.layout.is_fsdp
    if not copied or job.method.kind not in ADAPTER_KINDS_ON_LINEARS or job.step.framework in FUSED_KERNELS:
        return 0.0
    stacks = stacks_experts(job)
    return float(sum(adapter_elements(linear, job.method) for linear in block.linears if not (stacks and linear.stacked)) * compute)


def _copied_elements(job: Job, block: Block) -> float:
    """Elements of a block's weights that autocast casts: all linears but stacked experts, whose grouped products are not on its list."""
    stacks = stacks_experts(job)
    return float(sum(linear.parameters for linear in block.linears if not (stacks and linear.stacked and linear.copies > 1)))


def _trained_elements(job: Job, trains: Trainable, index: int) -> int:
    return job.shape.blocks[index].parameters if job.method.kind == "full" else trains.adapters_per_block[index]


@lru_cache(maxsize=64)
def _last_part(shape: ModelShape, gpus: int) -> ModelShape:
    """Under a naive device_map: the blocks of the last GPU, which has the head as well."""
    return replace(shape, layers=shape.layers[-ceil(len(shape.layers) / max(1, gpus)) :])


def _gathered_whole(job: Job, gathered: Units, shape: ModelShape) -> float:
    """Parameters that stay put together: all blocks without resharding after forward; up to max_live_parameters under ZeRO-3."""
    layout = job.layout
    blocks = sum(gathered.blocks[index] for index in shape.layers)
    if layout.strategy == "zero3":
        return min((layout.max_live_parameters or DEEPSPEED_MAX_LIVE_PARAMETERS) * compute_bytes(job), gathered.root + blocks)
    if layout.strategy == "fsdp_grad_op" or (layout.is_fsdp and layout.reshard_after_forward is False):
        return blocks
    return 0.0


def _gathered_in_part(job: Job, gathered: Units, shape: ModelShape) -> float:
    """reshard_after_forward as a number: between forward and backward each block stays divided over so many GPUs only."""
    over = job.layout.reshard_after_forward
    if isinstance(over, bool) or over >= job.layout.shards:
        return 0.0
    return sum(gathered.blocks[index] for index in shape.layers) / over


def _copies_weights(job: Job, compute: int) -> bool:
    """Autocast copies float32 weights to the compute dtype, unless FSDP has gathered them in it or they are quantized."""
    wide = DTYPE_BYTES[job.precision.weights] > compute
    return job.precision.autocast and wide and not job.layout.is_fsdp and not job.method.is_quantized


def _head_is_copied(job: Job, compute: int) -> bool:
    return _copies_weights(job, compute) or (job.precision.autocast and job.method.upcast_unquantized)


def retains_inputs(job: Job) -> bool:
    """FSDP1 registers, for units without a trainable parameter, a hook on their inputs that lives until backward has ended.

    Under reentrant checkpointing those inputs are detached leaves, so the hook holds each block's input and its gradient.
    Source: _register_post_backward_reshard_only_hook in torch.distributed.fsdp._runtime_utils, with register_multi_grad_hook of
    torch.autograd.graph, whose closure keeps the inputs' gradient nodes.
    """
    return (
        job.layout.implementation == "fsdp1"
        and job.layout.is_fsdp
        and job.method.kind != "full"
        and is_reentrant(job)
        and job.step.activation_checkpointing == "full"
    )


def _selective_kept(job: Job, block: Block, compute: int) -> float:
    """Selective checkpointing keeps the block's input and the outputs of attention and of matrix products, those of adapters among them.

    torchtitan keeps every second product (its ``_apply_ac_to_transformer_block`` counts them).
    """
    if job.step.activation_checkpointing != "selective":
        return 0.0
    routed = max(1, block.feed_forward.experts_per_token)
    widths = [linear.outputs * (routed if linear.copies > 1 else 1) for linear in block.linears]
    if job.step.framework == "torchtitan":
        widths = widths[::2]
    attention = block.attention.heads * (block.attention.value_head_dim * compute + 4)
    return float(job.batch.tokens * (sum(widths) * compute + attention + _adapters_kept(job, block))) + _stream(job)


def _adapters_kept(job: Job, block: Block) -> float:
    """Both products of every low-rank adapter of a block, ``rank + outputs`` elements a token [bytes per token]."""
    method, kernels = job.method, adapter_kernels(job)
    if kernels is None or not method.is_low_rank:
        return 0.0
    inner = compute_bytes(job) if job.precision.autocast else kernels.element_bytes
    routed = max(1, block.feed_forward.experts_per_token)
    found = [linear for linear in block.linears if linear.adapter_target in method.targets]
    return float(sum((routed if linear.copies > 1 else 1) * (method.rank + linear.outputs) for linear in found) * inner)
