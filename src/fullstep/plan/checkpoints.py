"""Checkpoints of a job judged: how large, how often, whether the stated storage takes them, and what to buy where it does not."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, floor, log10
from typing import Literal

from fullstep.cost.interruption import daly_interval_seconds
from fullstep.evidence import Evidence
from fullstep.job import Job
from fullstep.ledger import Caution, Checkpoint, CheckpointInterval, Container, StorageNeed, Suffices
from fullstep.physics.checkpointing import (
    Written,
    export_bytes,
    interval_seconds,
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
_ROUNDING = 1e-6


def size_checkpoint(job: Job, container: Container | None = None) -> Checkpoint:
    """All that is known of a job's checkpoints.

    Args:
        job: complete
        container: the form of its files; None: as the job's framework saves

    Returns:
        sizes in bytes over all nodes, times in seconds
    """
    saved, wanted = written(job, container), job.checkpoint
    size, export = saved.size_bytes, export_bytes(job)
    evidence: Evidence = "estimated" if saved.measured_bytes is None else "measured"
    interval, restored = interval_of(job, saved), restore_bytes(job, saved)
    return Checkpoint(
        evidence=evidence,
        container=saved.container,
        contents=saved.parts,
        resumable_bytes=size,
        files=saved.files,
        export_bytes=export,
        export_files=weight_files(job, export),
        write_bytes_per_second_required=bytes_per_second_required(size, wanted.write_within_minutes),
        read_bytes_per_second_required=bytes_per_second_required(restored, wanted.restore_within_minutes),
        average_write_bytes_per_second=size / interval.seconds,
        restore_bytes=restored,
        write_seconds=writing_seconds(job, saved),
        stall_seconds=stall_seconds(job, saved),
        restore_seconds=restoring_seconds(job, saved),
        interval=interval,
        staging_host_bytes=saving_host_bytes(job, container),
        kept=wanted.keep,
        disk_bytes=(wanted.keep + 1) * size + export,
        storage=storage_need(job, saved, export),
    )


def interval_of(job: Job, saved: Written) -> CheckpointInterval:
    """How often to save, and which of two limits is the shorter: the work that may be lost, or what loses least to failures of hardware.

    Hardware alone fails rarely: 8 GPUs some 6,300 hours apart. Machines that are taken away are the bill's matter.

    Args:
        job: complete
        saved: one checkpoint
    """
    gpus = job.machine.gpus * job.machine.nodes
    between = Bounds(*(hours / gpus for hours in figure("gpu_hours_per_failure").value))
    chosen, stall = interval_seconds(job, saved), stall_seconds(job, saved)
    upload = (writing_seconds(job, saved) or 0.0) if job.checkpoint.asynchronous else 0.0
    least = None
    if stall is not None and stall.likely > 0:  # what costs nothing has no best interval; and only one save is under way at a time
        least = Bounds(*(max(upload, daly_interval_seconds(cost, mean)) for cost, mean in zip(stall, between, strict=True)))
    by: Literal["work_that_may_be_lost", "failures", "unknown"] = "unknown"
    if least is not None:
        by = "failures" if least.likely < chosen else "work_that_may_be_lost"
    return CheckpointInterval(
        seconds=chosen, lost_at_most_seconds=chosen + upload, least_loss_seconds=least, mean_between_failures_seconds=between, bound_by=by
    )


def storage_need(job: Job, saved: Written, export: float) -> StorageNeed:
    """What each node's storage has to do, held against what is stated of it.

    Args:
        job: complete
        size_bytes: of one checkpoint
        export: the final model [bytes]
    """
    wanted, machine, nodes, size_bytes = job.checkpoint, job.machine, writing_nodes(job, saved), saved.size_bytes
    whole = restore_bytes_per_node(job, size_bytes)
    write = bytes_per_second_required(size_bytes, wanted.write_within_minutes) / nodes
    read = bytes_per_second_required(whole, wanted.restore_within_minutes)
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
        f"{_rate(write, up=True)} to write {_size(size_bytes / nodes)} in {wanted.write_within_minutes:g} min",
        f"{_rate(read, up=True)} to read {_size(whole)} in {wanted.restore_within_minutes:g} min",
        f"{_size(disk, up=True)} of disk for {wanted.keep} checkpoints, the one being written and the export",
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
        takes = _minutes(checkpoint.write_seconds or 0.0)
        text = f"a checkpoint takes {takes} to write, {job.checkpoint.write_within_minutes:g} are wanted"
        yield Caution("F201", f"{text}: {_rate(need.write_bytes_per_second_per_node, up=True)} per node are needed, {_rate(write)} there")
    if read is not None and read * _NEAR < need.read_bytes_per_second_per_node:
        takes = _minutes(checkpoint.restore_seconds or 0.0)
        text = f"a checkpoint takes {takes} to read back, {job.checkpoint.restore_within_minutes:g} are wanted"
        yield Caution("F202", f"{text}: {_rate(need.read_bytes_per_second_per_node, up=True)} per node are needed, {_rate(read)} there")
    if machine.disk_bytes is not None and machine.disk_bytes * _NEAR < need.disk_bytes_per_node:
        takes = f"{_size(need.disk_bytes_per_node, up=True)} of disk per node, {_size(machine.disk_bytes)} are there"
        yield Caution("F203", f"{checkpoint.kept} checkpoints, the one being written and the export take {takes}")
    wanted = job.checkpoint.lose_at_most_minutes * _MINUTE
    if interval.lost_at_most_seconds > wanted * _NEAR:
        lost = _minutes(interval.lost_at_most_seconds)
        text = f"up to {lost} of work can be lost, {job.checkpoint.lose_at_most_minutes:g} are wanted: an upload takes too long for that"
        yield Caution("F204", text)


def _minutes(seconds: float) -> str:
    return f"{seconds / _MINUTE:,.1f} min"


def _rate(bytes_per_second: float, *, up: bool = False) -> str:
    return f"{_three(bytes_per_second / GB, up=up)} GB/s"


def _size(size_bytes: float, *, up: bool = False) -> str:
    return f"{_three(size_bytes / GB, up=up)} GB"


def _three(amount: float, *, up: bool) -> str:
    """Three digits that mean something, whole from 100 on; ``up``: never less, for what is to be bought.

    >>> _three(0.32125, up=True), _three(0.32125, up=False), _three(2.0, up=True), _three(289.4, up=True), _three(1928.0, up=False)
    ('0.322', '0.321', '2', '290', '1,928')
    """
    if up and amount > 0:
        step = 10.0 ** (min(0, floor(log10(amount)) - 2))
        amount = ceil(amount / step - _ROUNDING) * step
    return f"{amount:,.0f}" if amount >= 100 else f"{amount:.3g}"
