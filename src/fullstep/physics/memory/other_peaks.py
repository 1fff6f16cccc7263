"""Peaks outside the steady step: loading, evaluation, saving. Each can end a run that would have trained."""

from __future__ import annotations

from fullstep.job import Job
from fullstep.ledger import OtherPeaks
from fullstep.physics.checkpointing.tensors import largest_elements, trained_tensors
from fullstep.physics.memory.besides import micro_batch_buffer_bytes
from fullstep.physics.memory.broadcast import broadcast_bytes
from fullstep.physics.memory.megatron import keeps_gradient_buffers
from fullstep.physics.memory.scene import Scene
from fullstep.physics.memory.weights import WeightBytes
from fullstep.quantities import DTYPE_BYTES


def other_peaks(whole: Job, job: Job, weights: WeightBytes, scene: Scene) -> OtherPeaks:
    """Bytes on one GPU at each of them; None where it does not happen."""
    return OtherPeaks(
        load=load_bytes(job, weights, scene),
        evaluation=evaluation_bytes(job, scene) if job.evaluation.happens else None,
        save=save_bytes(whole, job, weights, scene),
    )


def load_bytes(job: Job, weights: WeightBytes, scene: Scene) -> float:
    """On one GPU while the model is loaded and wrapped [bytes].

    Whole on every GPU: the stored weights, and beside 4-bit ones the matrix that is being packed. Sharded: the shard and the
    largest unit before it is divided; all of it where a plain script builds the model on the GPU and wraps it then. DDP sends the first
    rank's values in flat pieces (see broadcast_bytes); then it makes its buckets.

    Example: Llama-3.1-8B in bfloat16 over eight GPUs: ``2,007,565,312 + 2 * 1,050,677,248`` (shard and root), 3.8 GiB. Under DDP the
    buckets are as large as the weights: 32.1 GB.

    Source:
        torch 2.13, nn/parallel/distributed.py (_sync_module_states, then the reducer)
    """
    largest = max((linear.inputs * linear.outputs for block in job.shape.blocks for linear in block.linears), default=0)
    if job.layout.divides_parameters:
        if job.step.framework == "torch" and job.layout.loading == "every_rank":
            return weights.total
        return scene.weights + max((weights.outside, *weights.per_block))
    packed = 2.0 * largest if job.method.is_quantized else 0.0
    if job.layout.strategy != "ddp" or keeps_gradient_buffers(job):
        return scene.weights + packed
    return scene.weights + max(packed, broadcast_bytes(job), scene.gradients)


def evaluation_bytes(job: Job, scene: Scene) -> float:
    """On one GPU [bytes]: state, a forward pass that keeps nothing, its loss, and what evaluation collects.

    ``keeps_logits``: ``4 * rows * length * vocabulary / ranks``. ``generate_tokens``: keys and values of prompt and answer.
    """
    evaluation, batch, shape = job.evaluation, job.batch, job.shape
    share = evaluation.micro_batch / batch.micro_batch
    block = max(costs.profile.forward_peak_unsaved for costs in scene.blocks)
    gathered = scene.root.gathered + scene.gathered_whole + 2 * max(costs.gathered for costs in scene.blocks)
    logits = share * (scene.root.head.profile.forward_peak + scene.stream)
    size = scene.weights + scene.optimizer_states + scene.buffers + gathered + max(logits, share * (block + scene.stream))
    if evaluation.keeps_logits:
        rows = (evaluation.rows or 0) / max(1, job.layout.data_parallel)
        size += 4.0 * rows * batch.sequence_tokens * shape.vocabulary
    if evaluation.generate_tokens:
        tokens = evaluation.micro_batch * (batch.sequence_tokens + evaluation.generate_tokens)
        size += tokens * key_value_bytes_per_token(job)
    return size


def key_value_bytes_per_token(job: Job) -> float:
    """Keys and values of one token in all blocks [bytes]: ``key_value_heads * (head_dim + value_head_dim) * element`` each.

    Latent attention keeps its expanded heads in transformers.

    Example: Llama-3.1-8B, 32 blocks of 8 heads of 128 in 16 bits: ``32 * 8 * 256 * 2 = 131,072``.
    """
    element = min(DTYPE_BYTES[job.precision.compute] if job.precision.compute != "fp8" else 2, 2)
    total = 0
    for index in job.shape.layers:
        attention = job.shape.blocks[index].attention
        total += attention.key_value_heads * (attention.head_dim + attention.value_head_dim)
    return float(total * element)


def save_bytes(whole: Job, job: Job, weights: WeightBytes, scene: Scene) -> float:
    """On one GPU while a checkpoint is saved [bytes]: what is kept between steps, and what has to be put together for one file.

    Between steps weights and optimizer states are kept, and buffers that stay: DDP's buckets, workspaces of libraries.

    Parts are copied to the host where they lie, one tensor at a time or staged, which takes nothing of the GPU. For one file from shards
    FSDP2 and DeepSpeed put one tensor together at a time, weight or moment in its stored dtype; FSDP1 a unit, frozen weights included.

    Example: Llama-3.1-8B in float32 over eight GPUs: ``12 / 8 * 8.03e9`` and the embedding, ``4 * 525,336,576``: 14.1 GB beside buffers.
    FSDP1, whose root unit holds embedding and head, and which keeps the gradients: ``16 / 8 * 8.03e9 + 4 * 1,050,677,248`` = 20.3 GB.

    Args:
        whole: the job as the worksheet has it
        job: one rank's
        weights: one rank's, before sharding
        scene: one rank's

    Source:
        torch 2.13, distributed/_state_dict_utils.py _gather_state_dict (full_tensor, then to the CPU); FSDP1:
        distributed/fsdp/_state_dict_utils.py _full_pre_state_dict_hook, _optim_utils.py; DeepSpeed, _zero3_consolidated_16bit_state_dict
    """
    kept_gradients = scene.gradients if job.step.gradients_cleared == "before_backward" else 0.0
    stays = scene.buffers - micro_batch_buffer_bytes(job)
    size = scene.weights + scene.optimizer_states + stays + kept_gradients
    if whole.checkpoint.format != "full" or whole.checkpoint.asynchronous or not job.layout.divides_parameters:
        return size
    if job.layout.implementation == "fsdp1":
        states = DTYPE_BYTES[job.optimizer.state_dtype] / DTYPE_BYTES[job.precision.weights] if job.method.kind == "full" else 0.0
        return size + max((weights.outside + weights.modules, *weights.per_block)) * max(1.0, states)
    stored = job.precision.weights if job.method.kind == "full" else job.precision.adapters
    element = max(DTYPE_BYTES[stored], DTYPE_BYTES[job.optimizer.state_dtype] if job.layout.is_fsdp else 0)
    return size + largest_elements(trained_tensors(job)) * element
