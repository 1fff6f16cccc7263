"""Host memory of one node: it often dies first, at load or at save."""

from __future__ import annotations

from fullstep.job import Job
from fullstep.physics.checkpointing.staging import saving_host_bytes
from fullstep.physics.memory.optimizer import paged_state_bytes, state_bytes
from fullstep.physics.memory.scene import Scene
from fullstep.physics.memory.weights import trainable
from fullstep.quantities import DTYPE_BYTES, GIB

PROCESS_BYTES = 3 * GIB
"""one training process with Python, torch, CUDA's host side and pinned buffers (assumed; 2 to 4 GiB are usual)"""
CHECKPOINT_FILE_BYTES = 5 * 10**9
"""a file of a Hugging Face checkpoint, read one at a time where nobody holds the whole model (save_pretrained's default until version 5)"""


def host_memory(whole: Job, job: Job, scene: Scene) -> tuple[float, str]:
    """(peak on one node [bytes], when): the largest of loading, training and saving.

    Each process takes PROCESS_BYTES; see ``loading_bytes``, ``offloaded_bytes`` and ``saving_host_bytes``
    (its high bound: a host that runs out ends the job) for the rest.

    Example: eight ranks that each load Llama-3.1-8B in bfloat16: ``8 * (3 GiB + 16,060,522,496)``, about 154 GB.

    Valid:
        the size of a process is assumed; page cache and data loaders are not counted
    """
    processes = job.machine.gpus if job.layout.strategy != "layer_split" else 1
    base = float(processes * PROCESS_BYTES)
    training = base + processes * offloaded_bytes(job, scene)
    between_steps = training - (processes * scene.offloaded_activations if job.step.activation_offload else 0.0)
    moments = {
        "load": base + loading_bytes(whole, processes),
        "training": training,
        "save": between_steps + saving_host_bytes(whole).high,
    }
    when = max(moments, key=lambda name: moments[name])
    return moments[when], when


def loading_bytes(job: Job, processes: int) -> float:
    """Host memory of one node for the model while it is loaded [bytes].

    every_rank: each process of the node holds the whole model; rank0: one does; meta: none, one file at a time.
    A model that is quantized while it is loaded is read in its 16-bit form.

    Source:
        accelerate, FullyShardedDataParallelPlugin.cpu_ram_efficient_loading; transformers, save_pretrained max_shard_size
    """
    element = 2 if job.method.is_quantized else DTYPE_BYTES[job.precision.weights]
    whole = float(job.shape.parameters * element)
    if job.layout.loading == "every_rank":
        return processes * whole
    return whole if job.layout.loading == "rank0" else min(whole, float(CHECKPOINT_FILE_BYTES))


def offloaded_bytes(job: Job, scene: Scene) -> float:
    """What one process keeps in host memory while training.

    Optimizer: gradients and states of its shard, and under DeepSpeed masters, both float32. Parameters: its
    shard of them (FSDP takes gradients and states along). Activations: what the blocks keep. Paged optimizers: their states,
    should the GPU need the room.
    """
    trains, layout = trainable(job), job.layout
    shard = trains.total / max(1, layout.shards)
    size = 0.0
    states = state_bytes(job) / max(1, layout.shards)
    if layout.offload_parameters:
        size += scene.offloaded_weights
    if layout.offload_optimizer and layout.implementation == "deepspeed":
        size += shard * 2 * DTYPE_BYTES["float32"] + states
    elif layout.offload_optimizer or (layout.offload_parameters and layout.is_fsdp):
        size += shard * DTYPE_BYTES[job.precision.gradients] + states
    if job.step.activation_offload:
        size += scene.offloaded_activations
    size += paged_state_bytes(job) / max(1, layout.shards)
    return size
