"""What is there beside weights and activations: buffers, gradients until the step, temporaries of the step. Bytes on one GPU."""

from __future__ import annotations

from fullstep.hardware import device_overheads
from fullstep.job import Job
from fullstep.physics.memory.choices import compute_bytes
from fullstep.physics.memory.megatron import keeps_gradient_buffers, placeholder_bytes
from fullstep.physics.memory.optimizer import optimizer_temporaries_bytes
from fullstep.physics.memory.rank import tensor_plan
from fullstep.physics.memory.sharding import DEEPSPEED_BUCKET_ELEMENTS, DEEPSPEED_SUB_GROUP_ELEMENTS, Shares
from fullstep.physics.memory.weights import Trainable
from fullstep.quantities import DTYPE_BYTES


def gradients_until_the_step(job: Job, held: Shares, trains: Trainable) -> float:
    """Gradients as they pile up over the micro-batches: none where the step is part of backward; whole where FSDP reduces only the last
    micro-batch's (no_sync), by FSDP2 in the reduce dtype, by FSDP1 as backward makes them; else what is kept between steps."""
    if job.optimizer.in_backward:
        return 0.0
    if job.layout.is_fsdp and job.batch.accumulation > 1 and not job.layout.sync_every_micro_batch:
        piled = DTYPE_BYTES[job.precision.reduce] if job.layout.implementation == "fsdp2" else compute_bytes(job)
        return float(trains.total * piled)
    return held.gradients


def behind_embedding_gradient(job: Job) -> float:
    """What lies behind the gradient of an embedding that is cut by words, as torch makes it: the whole one, of which it is a view [bytes].

    FSDP copies shards out of it. Source: torch 2.13, distributed/tensor/_ops/_embedding_ops.py (the gradient is Partial); traces.
    """
    whole = tensor_plan(job) == "transformers" and not job.layout.is_fsdp and not job.optimizer.in_backward
    if not whole or (job.method.kind != "full" and job.shape.embedding_name not in job.method.train_modules):
        return 0.0
    return float((job.layout.tensor - 1) * job.shape.embedding_parameters * DTYPE_BYTES[job.precision.gradients])


def buffer_bytes(job: Job, held: Shares, trains: Trainable) -> float:
    """cuBLAS workspaces (one handle in forward, one in backward), the batch, rotary tables, buckets of the data-parallel reduction."""
    strategy, compute = job.layout.strategy, compute_bytes(job)
    size = float(device_overheads(job.machine.card).cublas_workspace_bytes) + micro_batch_buffer_bytes(job)
    if keeps_gradient_buffers(job):
        return size + placeholder_bytes(job)  # buckets are views of the gradient buffers
    if strategy == "ddp":
        size += held.gradients  # gradient_as_bucket_view is False by default: buckets are copies
    elif job.layout.is_zero and not job.layout.offload_parameters:
        bucket = job.layout.bucket_bytes or DEEPSPEED_BUCKET_ELEMENTS * compute
        size += min(bucket, trains.total * compute)
    return size


def micro_batch_buffer_bytes(job: Job) -> float:
    """Of the buffers those that a micro-batch brings: identifiers, labels and positions as int64, and rotary tables."""
    rotary = 2 * job.batch.sequence_tokens * job.shape.blocks[0].attention.head_dim * compute_bytes(job)
    return float(3 * 8 * job.batch.tokens + rotary)


def float32_gradients(job: Job, trains: Trainable) -> float:
    """DeepSpeed's step works on float32 copies of the gradient shard; stage 3 makes them one sub-group at a time."""
    if job.layout.implementation != "deepspeed" or not job.precision.master_weights or job.layout.offload_optimizer:
        return 0.0
    elements = trains.total / max(1, job.layout.shards)
    return 4.0 * (min(elements, DEEPSPEED_SUB_GROUP_ELEMENTS) if job.layout.strategy == "zero3" else elements)


def step_temporaries(job: Job, held: Shares, trains: Trainable) -> float:
    if job.layout.offload_optimizer or job.layout.offload_parameters:
        return 0.0
    shape = job.shape
    if job.method.kind == "full":
        largest = max(linear.weight_elements for block in shape.blocks for linear in block.linears)
        largest = max(largest, shape.embedding_parameters, shape.head_parameters)
    else:
        largest = max(1, trains.total // max(1, len(shape.layers)))
    element = held.trained / trains.total if trains.total else 0.0
    return optimizer_temporaries_bytes(job, held.trained, min(held.trained, largest * element))
