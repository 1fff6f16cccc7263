"""Checkpoints of a job judged: how large, how often, whether the stated storage takes them, and what to buy where it does not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from fullstep.cost.interruption import daly_interval_seconds
from fullstep.evidence import Evidence
from fullstep.job import Job
from fullstep.ledger import Caution, Checkpoint, CheckpointInterval, Container, StorageNeed, Suffices
from fullstep.physics.checkpointing import (
    export_bytes,
    interval_seconds,
    resumable_bytes,
    stall_seconds,
    weight_files,
    writing_seconds,
    written,
)
from fullstep.physics.checkpointing.figures import figure
from fullstep.physics.checkpointing.pace import (
    bytes_per_second_required,
    restore_bytes,
    restore_bytes_per_node,
    restoring_seconds,
    writing_nodes,
)
from fullstep.physics.checkpointing.staging import saving_host_bytes
from fullstep.quantities import GB, Bounds

_MINUTE = 60.0
_NEAR = 1 + 1e-9


def size_checkpoint(job: Job, container: Container | None = None) -> Checkpoint:
    """All that is known of a job's checkpoints.

    Args:
        job: complete
        container: the form of its files; None: as the job's framework saves

    Returns:
        sizes in bytes over all nodes, times in seconds
    """
    predicted, wanted = written(job, container), job.checkpoint
    is_measured = "checkpoint_gb" in job.measured
    size = resumable_bytes(job) if is_measured else predicted.total_bytes
    evidence: Evidence = "measured" if is_measured else "estimated"
    export = export_bytes(job)
    return Checkpoint(
        evidence=evidence,
        container=predicted.container,
        contents=predicted.parts,
        resumable_bytes=size,
        files=predicted.files,
        export_bytes=export,
        export_files=weight_files(job, export),
        write_bytes_per_second_required=bytes_per_second_required(size, wanted.write_within_minutes),
        read_bytes_per_second_required=bytes_per_second_required(restore_bytes(job), wanted.restore_within_minutes),
        average_write_bytes_per_second=size / interval_seconds(job),
        restore_bytes=restore_bytes(job),
        write_seconds=writing_seconds(job),
        stall_seconds=stall_seconds(job),
        restore_seconds=restoring_seconds(job),
        interval=interval_of(job),
        staging_host_bytes=saving_host_bytes(job),
        kept=wanted.keep,
        disk_bytes=(wanted.keep + 1) * size + export,
        storage=storage_need(job, size, export),
    )


def interval_of(job: Job) -> CheckpointInterval:
    """How often to save, and which of two limits is the shorter: the work that may be lost, or what loses least to failures of hardware.

    Hardware alone fails rarely: 8 GPUs some 6,300 hours apart. Machines that are taken away are the bill's matter.
    """
    gpus = job.machine.gpus * job.machine.nodes
    between = Bounds(*(hours / gpus for hours in figure("gpu_hours_per_failure").value))
    chosen, stall = interval_seconds(job), stall_seconds(job)
    upload = (writing_seconds(job) or 0.0) if job.checkpoint.asynchronous else 0.0
    least = None if stall is None else Bounds(*map(daly_interval_seconds, stall, between))
    by: Literal["work_that_may_be_lost", "failures", "unknown"] = "unknown"
    if least is not None:
        by = "failures" if least.likely < chosen else "work_that_may_be_lost"
    return CheckpointInterval(
        seconds=chosen, lost_at_most_seconds=chosen + upload, least_loss_seconds=least, mean_between_failures_seconds=between, bound_by=by
    )


def storage_need(job: Job, size_bytes: float, export: float) -> StorageNeed:
    """What each node's storage has to do, held against what is stated of it.

    Args:
        job: complete
        size_bytes: of one checkpoint
        export: the final model [bytes]
    """
    wanted, machine, nodes = job.checkpoint, job.machine, writing_nodes(job)
    write = bytes_per_second_required(size_bytes, wanted.write_within_minutes) / nodes
    read = bytes_per_second_required(restore_bytes_per_node(job), wanted.restore_within_minutes)
    disk = (wanted.keep + 1) * size_bytes / nodes + export
    stated = (
        (machine.storage_write_bytes_per_second, write), (machine.storage_read_bytes_per_second, read), (machine.disk_bytes, disk),
    )  # fmt: skip
    short = [there is not None and there * _NEAR < needed for there, needed in stated]
    verdict: Suffices = "unknown"
    if any(short):
        verdict = "does_not_suffice"
    elif all(there is not None for there, _ in stated):
        verdict = "suffices"
    whats = (
        f"{_rate(write)} to write {_size(size_bytes / nodes)} in {wanted.write_within_minutes:g} min",
        f"{_rate(read)} to read {_size(restore_bytes_per_node(job))} in {wanted.restore_within_minutes:g} min",
        f"{_size(disk)} of disk for {wanted.keep} checkpoints, the one being written and the export",
    )
    said = [
        f"{what} ({_size(there) if number == 2 else _rate(there)} there)"
        for number, (what, (there, _), is_short) in enumerate(zip(whats, stated, short, strict=True))
        if is_short and there is not None
    ]
    return StorageNeed(
        verdict=verdict,
        write_bytes_per_second_per_node=write,
        read_bytes_per_second_per_node=read,
        disk_bytes_per_node=disk,
        sentence=f"storage does not suffice: buy per node {'; '.join(said)}" if said else "",
    )


def checkpoint_cautions(job: Job, checkpoint: Checkpoint) -> Iterator[Caution]:
    """What of a checkpoint is worth knowing before anything is bought: storage that is too slow or too small, and intervals too long."""
    machine, need, interval = job.machine, checkpoint.storage, checkpoint.interval
    write, read = machine.storage_write_bytes_per_second, machine.storage_read_bytes_per_second
    if write is not None and write * _NEAR < need.write_bytes_per_second_per_node:
        takes = _minutes(checkpoint.resumable_bytes / (write * writing_nodes(job)))
        text = f"a checkpoint takes {takes} to write, {job.checkpoint.write_within_minutes:g} are wanted"
        yield Caution("F201", f"{text}: {_rate(need.write_bytes_per_second_per_node)} per node are needed, {_rate(write)} there")
    if read is not None and read * _NEAR < need.read_bytes_per_second_per_node:
        takes = _minutes(restore_bytes_per_node(job) / read)
        text = f"a checkpoint takes {takes} to read back, {job.checkpoint.restore_within_minutes:g} are wanted"
        yield Caution("F202", f"{text}: {_rate(need.read_bytes_per_second_per_node)} per node are needed, {_rate(read)} there")
    if machine.disk_bytes is not None and machine.disk_bytes * _NEAR < need.disk_bytes_per_node:
        text = f"{checkpoint.kept} checkpoints, the one being written and the export take {_size(need.disk_bytes_per_node)} of disk"
        yield Caution("F203", f"{text} per node, {_size(machine.disk_bytes)} are there")
    wanted = job.checkpoint.lose_at_most_minutes * _MINUTE
    if interval.lost_at_most_seconds > wanted * _NEAR:
        lost = _minutes(interval.lost_at_most_seconds)
        text = f"up to {lost} of work can be lost, {job.checkpoint.lose_at_most_minutes:g} are wanted: an upload takes too long for that"
        yield Caution("F204", text)


def _minutes(seconds: float) -> str:
    return f"{seconds / _MINUTE:,.1f} min"


def _rate(bytes_per_second: float) -> str:
    return f"{_three(bytes_per_second / GB)} GB/s"


def _size(size_bytes: float) -> str:
    return f"{_three(size_bytes / GB)} GB"


def _three(amount: float) -> str:
    """Three digits that mean something, whole from 100 on.

    >>> _three(0.3214), _three(14.11), _three(289.4), _three(1928.0), _three(0.00042)
    ('0.321', '14.1', '289', '1,928', '0.00042')
    """
    return f"{amount:,.0f}" if amount >= 100 else f"{amount:.3g}"
