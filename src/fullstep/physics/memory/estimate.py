"""The memory of one training step, from a job. See the modules of this package for each part."""

from __future__ import annotations

from fullstep.hardware import device_overheads
from fullstep.job import Job
from fullstep.ledger import MemoryEstimate
from fullstep.physics.memory.block import block_profile
from fullstep.physics.memory.choices import block_kernels, compute_bytes, loss_habit, residual_bytes
from fullstep.physics.memory.counters import counters
from fullstep.physics.memory.framework import is_reentrant
from fullstep.physics.memory.head import head_profile
from fullstep.physics.memory.host import host_memory
from fullstep.physics.memory.other_peaks import other_peaks
from fullstep.physics.memory.sharding import (
    DEEPSPEED_BUCKET_ELEMENTS,
    DEEPSPEED_MAX_LIVE_PARAMETERS,
    FSDP,
    Shares,
    Units,
    shares,
    units,
)
from fullstep.physics.memory.state import (
    Trainable,
    gradient_bytes,
    optimizer_temporaries_bytes,
    state_bytes,
    trainable,
    weight_bytes,
)
from fullstep.physics.memory.walk import BlockCosts, Scene, walk_step
from fullstep.quantities import DTYPE_BYTES


def estimate_memory(job: Job) -> MemoryEstimate:
    """Every instant of the steady step, three counters with bounds, the other peaks, and the host. All sizes in bytes.

    Raises nothing for a complete job: what is not covered was refused when the worksheet was completed.
    """
    trains = trainable(job)
    weights = weight_bytes(job)
    held = shares(job, weights, gradient_bytes(job), state_bytes(job), trains)
    gathered = units(job, weights, trains)
    scene = _scene(job, held, gathered, trains)
    early = held.gradients if _keeps_old_gradients(job) else 0.0
    instants = walk_step(scene, job, early)
    peak = max(instants, key=lambda instant: instant.allocated_bytes)
    others = other_peaks(job, held, weights, gathered, scene)
    found = counters(job, scene, instants)
    host, host_at = host_memory(job, held, weights, scene)
    return MemoryEstimate(
        parameters=job.shape.parameters,
        trainable_parameters=trains.total,
        instants=instants,
        peak_at=peak.at,
        allocated=found.allocated,
        reserved=found.reserved,
        device=found.device,
        needed=found.needed,
        other_peaks=others,
        host_bytes=host,
        host_at=host_at,
    )


def _keeps_old_gradients(job: Job) -> bool:
    """Gradients of the step before are there in the next forward. FSDP1 keeps them between steps too, but lets go as forward begins."""
    return job.step.gradients_cleared == "before_backward" and job.layout.implementation != "fsdp1"


def _scene(job: Job, held: Shares, gathered: Units, trains: Trainable) -> Scene:
    layout, shape, precision = job.layout, job.shape, job.precision
    strategy = layout.strategy
    sharded = strategy in FSDP
    compute, tokens = compute_bytes(job), job.batch.tokens
    cards = device_overheads(job.machine.card)
    habit = loss_habit(job)
    first = block_kernels(job, shape.blocks[0], gradients_exist=False)
    head = head_profile(shape, first, habit)
    copies = precision.autocast and DTYPE_BYTES[precision.weights] > compute and not sharded and job.method.quantization == "none"
    upcast = job.method.upcast_unquantized and precision.autocast
    split = strategy == "layer_split"
    layers = shape.layers[-(-(-len(shape.layers) // job.machine.gpus)) :] if split else shape.layers
    keep_gathered = sharded and (layout.reshard_after_forward is False or strategy == "fsdp_grad_op")
    live = 0.0
    if keep_gathered:
        live = sum(gathered.blocks[index] for index in layers)
    elif strategy == "zero3":
        limit = layout.max_live_parameters or DEEPSPEED_MAX_LIVE_PARAMETERS
        live = min(limit * compute, gathered.root + sum(gathered.blocks[index] for index in layers))
    new_gradients = 0.0 if job.optimizer.in_backward else _gradients_until_the_step(job, held, trains)
    per_trained = new_gradients / trains.total if trains.total else 0.0
    blocks = []
    for index, block in enumerate(shape.blocks):
        kernels = block_kernels(job, block, gradients_exist=False)
        profile = block_profile(block, kernels, shape.hidden)
        trained = block.parameters if job.method.kind == "full" else trains.adapters_per_block[index]
        blocks.append(
            BlockCosts(
                profile=profile,
                selective_kept=_selective_kept(job, block, compute),
                gathered=gathered.blocks[index] if sharded and not keep_gathered else 0.0,
                reduced=gathered.block_gradients[index] * gathered.reduce_factor if sharded else 0.0,
                gradients_left=trained * per_trained,
                copies=float(block.linear_parameters * compute) if copies else 0.0,
            )
        )
    trains_embedding = job.method.kind == "full" or shape.embedding_name in job.method.train_modules
    head_trained = (shape.head_parameters or shape.embedding_parameters) if habit.trains_head else 0
    gradient_width = compute if sharded else DTYPE_BYTES[precision.gradients]
    return Scene(
        shape=shape if not split else _part(shape, layers),
        checkpointing=job.step.activation_checkpointing,
        stream=float(tokens * shape.hidden * residual_bytes(job)),
        weights=held.weights if not layout.offload_parameters else 0.0,
        optimizer_states=0.0 if layout.offload_optimizer or layout.offload_parameters and sharded else held.optimizer_states,
        gradients=0.0 if layout.offload_parameters and sharded else new_gradients,
        buffers=_buffers(job, held, trains, cards.cublas_workspace_bytes),
        blocks=tuple(blocks),
        head=head,
        head_copies=float((shape.head_parameters or shape.embedding_parameters) * compute) if copies or upcast else 0.0,
        caches_copies=job.method.kind == "full",
        root_gathered=gathered.root if sharded else 0.0,
        gathered_whole=live,
        prefetches=sharded,
        head_gradients_left=head_trained * (compute if sharded else per_trained),
        head_gradient=float(head_trained * gradient_width),
        embedding_gradient=float(shape.embedding_parameters * gradient_width) if trains_embedding and (shape.tied or sharded) else 0.0,
        root_reduced=gathered.root_gradients * gathered.reduce_factor if sharded else 0.0,
        keeps_outputs=job.step.keeps_outputs,
        reentrant=is_reentrant(job),
        retains_inputs=_retains_inputs(job),
        offloads_activations=job.step.activation_offload,
        offloaded_weights=held.weights if layout.offload_parameters else 0.0,
        step_temporaries=_step_temporaries(job, held, trains),
        extra_step_gradients=_float32_gradients(job, held, trains),
    )


def _gradients_until_the_step(job: Job, held: Shares, trains: Trainable) -> float:
    """Gradients as they pile up over the micro-batches: shards, or whole in the reduce dtype where only the last one is reduced (no_sync)."""
    if job.layout.strategy in FSDP and job.batch.accumulation > 1 and not job.layout.sync_every_micro_batch:
        return float(trains.total * DTYPE_BYTES[job.precision.reduce])
    return held.gradients


def _part(shape, layers):  # type: ignore[no-untyped-def]
    from dataclasses import replace  # noqa: PLC0415

    return replace(shape, layers=layers)


def _retains_inputs(job: Job) -> bool:
    """FSDP1 registers, for units without a trainable parameter, a hook on their inputs that lives until backward has ended.

    Under reentrant checkpointing those inputs are detached leaves, so the hook holds each block's input and its gradient.
    Source: torch.distributed.fsdp._runtime_utils._register_post_backward_reshard_only_hook with torch.autograd.graph.register_multi_grad_hook.
    """
    return (
        job.layout.implementation == "fsdp1"
        and job.layout.strategy in ("fsdp", "fsdp_grad_op", "hsdp")
        and job.method.kind != "full"
        and is_reentrant(job)
        and job.step.activation_checkpointing == "full"
    )


def _selective_kept(job: Job, block, compute: int) -> float:  # type: ignore[no-untyped-def]
    """Selective checkpointing keeps the outputs of matrix products (torchtitan: of every second one), of attention, and the block's input."""
    if job.step.activation_checkpointing != "selective":
        return 0.0
    tokens = job.batch.tokens
    routed = max(1, block.feed_forward.experts_per_token)
    widths = [linear.outputs * (routed if linear.copies > 1 else 1) for linear in block.linears]
    if job.step.framework == "torchtitan":
        widths = widths[::2]
    attention = block.attention.heads * (block.attention.value_head_dim * compute + 4)
    return float(tokens * (sum(widths) * compute + attention + job.shape.hidden * residual_bytes(job)))


def _buffers(job: Job, held: Shares, trains: Trainable, cublas_workspace_bytes: int) -> float:
    """cuBLAS workspaces (one handle in forward, one in backward), the batch, rotary tables, buckets of the data-parallel reduction."""
    tokens, shape, strategy = job.batch.tokens, job.shape, job.layout.strategy
    head_dim = shape.blocks[0].attention.head_dim
    size = float(cublas_workspace_bytes) + tokens * 8 * 3 + 2 * job.batch.sequence_tokens * head_dim * compute_bytes(job)
    if strategy == "ddp":
        size += held.gradients
    elif strategy in ("zero1", "zero2", "zero3") and not job.layout.offload_parameters:
        bucket = job.layout.bucket_bytes or DEEPSPEED_BUCKET_ELEMENTS * compute_bytes(job)
        size += min(bucket, trains.total * compute_bytes(job))
    return size


def _float32_gradients(job: Job, held: Shares, trains: Trainable) -> float:
    """DeepSpeed's step works on float32 copies of the gradient shard."""
    if job.layout.implementation != "deepspeed" or not job.precision.master_weights or job.layout.offload_optimizer:
        return 0.0
    elements = trains.total / max(1, job.layout.shards)
    return 4.0 * (min(elements, 1e9) if job.layout.strategy == "zero3" else elements)


def _step_temporaries(job: Job, held: Shares, trains: Trainable) -> float:
    if job.layout.offload_optimizer or job.layout.offload_parameters:
        return 0.0
    shape, method = job.shape, job.method
    if method.kind == "full":
        largest = max(shape.embedding_parameters, max(linear.weight_elements for block in shape.blocks for linear in block.linears))
    else:
        largest = max(1, trains.total // max(1, len(shape.layers)))
    element = held.trained / trains.total if trains.total else 0.0
    return optimizer_temporaries_bytes(job, held.trained, min(held.trained, largest * element))

