"""Host memory of one node while a checkpoint is saved, beside what training takes: what rank 0 puts together, what ranks stage."""

from __future__ import annotations

from fullstep.job import Job
from fullstep.physics.checkpointing.containers import container_of, ranks_of_all, shard_bytes
from fullstep.physics.checkpointing.contents import contents_of
from fullstep.physics.checkpointing.figures import figure
from fullstep.physics.checkpointing.pace import staged_bytes_per_rank
from fullstep.quantities import Bounds


def saving_host_bytes(job: Job) -> Bounds:
    """Of the node that needs most [bytes]::

        distributed, deepspeed          0: one tensor at a time goes through host memory
        asynchronous, threads           ranks of the node * what each stages
        asynchronous, processes         the same three times over with the default stager, once with a kept one in shared memory; and an
                                        interpreter for each
        full                            rank 0: all weights that are saved and all states
        trainer, adapter                rank 0: one file of weights (safetensors copies a whole file's tensors before it writes), of
                                        16-bit or float32 weights at most 50 GB

    Staged copies are pinned and stay where the stager is kept; there is one set of them, since only one save is under way.

    Example: 96.4 GB on 8 GPUs of one node: threads 96.4 GB, processes ``3 * 96.4 + 8 * 0.5 = 293`` GB.

    Args:
        job: the whole job

    Source:
        torch 2.13, distributed/checkpoint (DefaultStager, async_process_executor); safetensors, torch.py save_file; memory as measured on
        CPUs, ``data/figures.csv``; a job that ran out at its first save: github.com/radixark/Megatron-LM/issues/61

    Valid:
        dirty pages of the write are not counted; pinned memory was not measured
    """
    if job.checkpoint.asynchronous:
        return _staged(job)
    contents, kind = contents_of(job), container_of(job)
    if kind in ("trainer", "adapter"):
        return Bounds.exact(min(contents.trained, shard_bytes(job)))
    return Bounds.exact(contents.total) if kind == "full" else Bounds.exact(0.0)


def _staged(job: Job) -> Bounds:
    ranks = min(ranks_of_all(job), job.machine.gpus)
    held, by_process = staged_bytes_per_rank(job), job.checkpoint.async_mode == "process"
    copies = figure("staged_by_process" if by_process else "staged_by_thread").value
    interpreter = figure("saver_process").value if by_process else Bounds(0, 0, 0)
    return Bounds(*(ranks * (held * share + own) for share, own in zip(copies, interpreter, strict=True)))
