"""How long saves take and hold training up, how often they come, and how fast storage has to be."""

from __future__ import annotations

from math import floor

from fullstep.job import Job
from fullstep.physics.checkpointing.containers import Written, ranks_of_all, written
from fullstep.physics.checkpointing.contents import contents_of
from fullstep.physics.checkpointing.figures import figure
from fullstep.physics.timing.rates import card_rates, seconds_at
from fullstep.quantities import Bounds

_MINUTE = 60.0


def resumable_bytes(job: Job) -> float:
    """All files of one checkpoint from which training can go on [bytes]; see ``contents_of`` and ``written``."""
    return written(job).size_bytes


def writing_nodes(job: Job, saved: Written) -> int:
    """Nodes that write at once: all of them where each rank writes its part, one where rank 0 writes it all."""
    return job.machine.nodes if saved.container in ("distributed", "deepspeed") else 1


def bytes_per_second_required(size_bytes: float, within_minutes: float) -> float:
    """``S / T`` [B/s], of all nodes together.

    Args:
        size_bytes: S, of one checkpoint [bytes]
        within_minutes: T [min]

    >>> bytes_per_second_required(600e9, 5) / 1e9
    2.0
    """
    return size_bytes / (within_minutes * _MINUTE)


def restore_bytes(job: Job, saved: Written | None = None) -> float:
    """What all ranks read together to go on [bytes]: divided state once, whole replicas each for itself, ``R * S``.

    Replicas of HSDP read their shards ``R`` times. DeepSpeed's partitions are read by the ranks that own them, its 16-bit model by each.

    Example: 96.4 GB under DDP on 8 GPUs: 771 GB, most of it from the page cache of a node.

    Args:
        job: complete
        saved: one checkpoint; None: as the job's framework writes it

    Source:
        torch.distributed.checkpoint, default planner: a load is not deduplicated (github.com/pytorch/torchtitan/issues/4035)
    """
    size, layout, ranks = (saved or written(job)).size_bytes, job.layout, ranks_of_all(job)
    if layout.is_zero:
        contents = contents_of(job)
        model = contents.trained + contents.frozen if layout.strategy != "zero3" else 0.0
        return size + (layout.data_parallel - 1) * model
    return size * max(1, ranks // divided_among(job))


def writing_seconds(job: Job, saved: Written | None = None) -> float | None:
    """Of one save [s]: all nodes write their parts at once, or one node writes it all; None: the rate is not stated.

    Args:
        job: complete
        saved: one checkpoint; None: as the job's framework writes it
    """
    rate = job.machine.storage_write_bytes_per_second
    if rate is None:
        return None
    found = saved or written(job)
    return found.size_bytes / (rate * writing_nodes(job, found))


def restoring_seconds(job: Job, saved: Written | None = None) -> float | None:
    """Of reading one back on all nodes at once [s]: each node reads its share once, replicas on one node from its page cache.

    Args:
        job: complete
        saved: one checkpoint; None: as the job's framework writes it

    Returns:
        None: ``machine.storage_read_gb_s`` is not stated
    """
    rate = job.machine.storage_read_bytes_per_second
    return None if rate is None else restore_bytes_per_node(job, (saved or written(job)).size_bytes) / rate


def restore_bytes_per_node(job: Job, size_bytes: float) -> float:
    """What the storage of one node has to give at a restart [bytes]: its ranks' state, what several of them read counted once.

    Args:
        job: complete
        size_bytes: of one checkpoint [bytes]
    """
    return size_bytes * min(1.0, job.machine.gpus / divided_among(job)) if job.machine.nodes > 1 else size_bytes


def staged_bytes_per_rank(job: Job) -> float:
    """What one rank copies to its host for an asynchronous save [bytes]: its part; replicas copy it all, and one of them writes."""
    return contents_of(job).total / divided_among(job)


def divided_among(job: Job) -> int:
    """Ranks among which one copy of the whole state is divided: shards, context, tensor and pipeline ranks."""
    return job.layout.state_ranks * job.layout.tensor * job.layout.pipeline


def stall_seconds(job: Job, saved: Written | None = None) -> Bounds | None:
    """How long one save holds training up [s]; None: ``machine.storage_write_gb_s`` is not stated.

    ::

        synchronous     bytes / (rate per node * nodes); rank 0 writes it all: bytes / rate per node
        asynchronous    a rank's part copied to its host over PCIe; high: into memory that is taken anew at each save, and with threads
                        steps beside the upload that are slowed down

    Example: 96.4 GB from one node at 1 GB/s: 96.4 s; asynchronous on 8 H100: ``12.05 GB / (0.8 * 63 GB/s)`` = 0.24 s.

    Args:
        job: complete
        saved: one checkpoint; None: as the job's framework writes it

    Source:
        torch.distributed.checkpoint, async_save: training waits for staging alone; what slows steps down: ``data/figures.csv``

    Valid:
        storage writes at the stated rate; the copy of the high bound was measured on CPUs, as was that a first save takes longer
    """
    writing = writing_seconds(job, saved)
    if writing is None:
        return None
    if not job.checkpoint.asynchronous:
        return Bounds.exact(writing)
    staged, slowed = staged_bytes_per_rank(job), Bounds(0, 0, 0)
    if job.checkpoint.async_mode == "thread":
        slowed = Bounds(*(share * writing for share in figure("slowed_by_thread").value))
    anew = staged / figure("pageable_copy").value.low
    rates = None if job.machine.card is None else card_rates(job.machine.card)
    if rates is None or rates.pcie_bytes_per_second is None:
        return Bounds(0, 0, anew) + slowed
    copied = seconds_at(staged, rates.pcie_bytes_per_second)
    return Bounds(copied.low, copied.likely, max(copied.high, anew)) + slowed


def interval_seconds(job: Job, saved: Written | None = None) -> float:
    """Training between two saves, so that a failure costs no more work than is wanted [s]::

        synchronous     L
        asynchronous    L - T, at least T

    L: ``checkpoint.lose_at_most_minutes``; T: time of the upload. The newest whole checkpoint of asynchronous saves is older by an upload,
    and only one is under way at a time. What a restart takes is not work that is lost; it is told apart (``restore_seconds``).

    Example: at most 30 minutes, an upload of 5: every 25 minutes. An upload of 20: every 20 minutes, and up to 40 are lost.

    Args:
        job: complete
        saved: one checkpoint; None: as the job's framework writes it

    Source:
        worst case of work done since the start of the newest save that is whole
    """
    wanted = job.checkpoint.lose_at_most_minutes * _MINUTE
    upload = writing_seconds(job, saved) if job.checkpoint.asynchronous else None
    return wanted if upload is None else max(wanted - upload, upload)


def checkpoint_seconds(job: Job, training: Bounds) -> Bounds | None:
    """What all saves of a run take of its time [s]: one each ``interval_seconds`` of training, and one at the end.

    Args:
        job: complete
        training: of the run without saves [s]

    Returns:
        [s]; None: what storage writes is not stated
    """
    if job.machine.storage_write_bytes_per_second is None:
        return None
    saved = written(job)
    stall, writing = stall_seconds(job, saved), writing_seconds(job, saved)
    if stall is None or writing is None:
        return None
    last = writing if job.checkpoint.asynchronous else 0.0  # nothing runs beside the last one
    interval = interval_seconds(job, saved)
    return Bounds(*(one * (floor(seconds / interval) + 1) + last for one, seconds in zip(stall, training, strict=True)))
