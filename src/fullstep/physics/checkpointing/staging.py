"""Host memory of one node while a checkpoint is saved, beside what training takes: what rank 0 puts together, what ranks stage."""

from __future__ import annotations

from fullstep.job import Job
from fullstep.ledger import Container
from fullstep.physics.checkpointing.containers import container_of, ranks_of_all, saves_by_trainer, shard_bytes
from fullstep.physics.checkpointing.contents import contents_of
from fullstep.physics.checkpointing.figures import figure
from fullstep.physics.checkpointing.pace import divided_among, staged_bytes_per_rank
from fullstep.physics.memory.weights import weight_bytes
from fullstep.quantities import Bounds


def saving_host_bytes(job: Job, container: Container | None = None) -> Bounds:
    """Of the node that needs most [bytes]::

        distributed, deepspeed          0: one tensor at a time goes through host memory
        distributed by the Trainer      accelerate copies each rank's part of the model to the host first, then that of the states
        deepspeed by the Trainer        at stages 1 and 2 accelerate copies the whole model to the host, frozen base included, on each rank
        asynchronous, threads           ranks of the node * what each stages
        asynchronous, processes         the same three times over with the default stager, once with a kept one in shared memory; and an
                                        interpreter for each
        full                            rank 0: all weights that are saved and all states; by the Trainer one after the other
        trainer, adapter                rank 0: one file of weights, at most 50 GB: safetensors copies a file's tensors before it writes

    Staged copies are pinned and stay where the stager is kept; there is one set of them, since only one save is under way.

    Example: 96.4 GB on 8 GPUs of one node: threads 96.4 GB, processes ``3 * 96.4 + 8 * 0.5 = 293`` GB; by the Trainer under FSDP 64.2 GB.
    16.1 GB of 16-bit weights under ZeRO-2 on 8 GPUs: 128 GB.

    Args:
        job: the whole job
        container: the form of its files; None: as the job's framework saves

    Source:
        torch 2.13, distributed/checkpoint (DefaultStager, async_process_executor), measured on CPUs: ``data/figures.csv``; safetensors,
        torch.py save_file; accelerate 1.10, FullyShardedDataParallelPlugin.set_state_dict_type (offload_to_cpu), utils/fsdp_utils.py,
        Accelerator.get_state_dict (clone_tensors_for_torch_save); out of memory at a first save: github.com/radixark/Megatron-LM/issues/61

    Valid:
        dirty pages of the write are not counted; pinned memory was not measured
    """
    return _staged(job) if job.checkpoint.asynchronous else Bounds.exact(_put_together_bytes(job, container))


def _put_together_bytes(job: Job, container: Container | None) -> float:
    """By rank 0, or where accelerate copies before it writes by each rank of the node."""
    contents, kind, layout = contents_of(job), container or container_of(job), job.layout
    by_trainer = container is None and saves_by_trainer(job)
    at_once = max(contents.trained, contents.states) if by_trainer else contents.total
    if kind in ("trainer", "adapter"):
        return min(contents.trained, shard_bytes(job))
    if kind == "full":
        return at_once
    if by_trainer and kind == "deepspeed" and layout.strategy != "zero3":
        weights = weight_bytes(job)
        return _ranks_of_node(job) * (weights.total - weights.masters)
    if by_trainer and layout.is_fsdp and not layout.offload_parameters:
        return _ranks_of_node(job) * at_once / divided_among(job)
    return 0.0


def _staged(job: Job) -> Bounds:
    ranks = _ranks_of_node(job)
    held, by_process = staged_bytes_per_rank(job), job.checkpoint.async_mode == "process"
    copies = figure("staged_by_process" if by_process else "staged_by_thread").value
    interpreter = figure("saver_process").value if by_process else Bounds(0, 0, 0)
    return Bounds(*(ranks * (held * share + own) for share, own in zip(copies, interpreter, strict=True)))


def _ranks_of_node(job: Job) -> int:
    return min(ranks_of_all(job), job.machine.gpus)
