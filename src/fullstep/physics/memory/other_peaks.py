"""Peaks outside the steady step: loading, evaluation, saving. Each can end a run that would have trained."""

from __future__ import annotations

from fullstep.job import Job
from fullstep.ledger import OtherPeaks
from fullstep.physics.memory.scene import Scene
from fullstep.physics.memory.sharding import Units
from fullstep.physics.memory.weights import WeightBytes
from fullstep.quantities import DTYPE_BYTES


def other_peaks(job: Job, weights: WeightBytes, gathered: Units, scene: Scene) -> OtherPeaks:
    """Bytes on one GPU at each of them; None where it does not happen."""
    return OtherPeaks(
        load=load_bytes(job, weights, scene),
        evaluation=evaluation_bytes(job, scene) if job.evaluation.happens else None,
        save=save_bytes(job, gathered, scene),
    )


def load_bytes(job: Job, weights: WeightBytes, scene: Scene) -> float:
    """On one GPU while the model is loaded and wrapped [bytes].

    Whole on every GPU: the stored weights, and beside 4-bit ones the matrix that is being packed. Sharded: the shard and the
    largest unit before it is divided; all of it where a plain script builds the model on the GPU and wraps it then.

    Example: Llama-3.1-8B in bfloat16 over eight GPUs: ``2,007,565,312 + 2 * 1,050,677,248`` (shard and root), 3.8 GiB.
    """
    largest = max((linear.inputs * linear.outputs for block in job.shape.blocks for linear in block.linears), default=0)
    if job.layout.divides_parameters:
        if job.step.framework == "torch" and job.layout.loading == "every_rank":
            return weights.total
        return scene.weights + max((weights.outside, *weights.per_block))
    packed = 2.0 * largest if job.method.is_quantized else 0.0
    return scene.weights + packed


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


def save_bytes(job: Job, gathered: Units, scene: Scene) -> float:
    """On one GPU: what is kept between steps, and for one full file from shards the unit that is being put together."""
    kept_gradients = scene.gradients if job.step.gradients_cleared == "before_backward" else 0.0
    size = scene.weights + scene.optimizer_states + kept_gradients
    if job.checkpoint.format == "full" and job.layout.divides_parameters:
        size += max((gathered.root, *gathered.blocks))
    return size
