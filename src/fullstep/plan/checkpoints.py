"""Checkpoints of a job judged: how large, how often, whether the stated storage takes them, and what to buy where it does not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from fullstep.cost.interruption import daly_interval_seconds
from fullstep.evidence import Evidence
from fullstep.job import Job
from fullstep.ledger import Caution, Checkpoint, CheckpointInterval, Container, StorageNeed, Suffices
from fullstep.ledger.checkpoint import IntervalBoundBy
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
from fullstep.plan.storage_words import rate_words, size_words
from fullstep.quantities import Bounds

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
    """How often to save: by the work that may be lost, or by the upload where that takes longer; and what would lose least to failures.

    Hardware alone fails rarely: 8 GPUs some 6,300 hours apart. Machines that are taken away are the bill's matter.

    Args:
        job: complete
        saved: one checkpoint
    """
    gpus = job.machine.gpus * job.machine.nodes
    between = Bounds(*(hours / gpus for hours in figure("gpu_hours_per_failure").value))
    chosen, stall = interval_seconds(job, saved), stall_seconds(job, saved)
    upload = writing_seconds(job, saved) if job.checkpoint.asynchronous else 0.0
    lost = None if upload is None else chosen + upload
    least = None
    if stall is not None and stall.likely > 0:  # what costs nothing has no best interval; and only one save is under way at a time
        least = Bounds(*(max(upload or 0.0, daly_interval_seconds(cost, mean)) for cost, mean in zip(stall, between, strict=True)))
    by: IntervalBoundBy = "unknown"
    if lost is not None:
        by = "upload" if lost > job.checkpoint.lose_at_most_minutes * _MINUTE * _NEAR else "work_that_may_be_lost"
    return CheckpointInterval(
        seconds=chosen, lost_at_most_seconds=lost, bound_by=by, least_loss_seconds=least, mean_between_failures_seconds=between,
        least_loss_is_shorter=None if least is None else least.likely < chosen,
    )  # fmt: skip


class _Ask(NamedTuple):
    """One thing that the storage of a node has to do; rates in B/s, disk in bytes."""

    key: str
    """of the worksheet, that states it"""
    needed: float
    stated: float | None
    words: str

    @property
    def is_short(self) -> bool:
        """Less is stated than is needed."""
        return self.stated is not None and self.stated * _NEAR < self.needed

    @property
    def to_buy(self) -> str:
        """What is needed, with what is there."""
        there = self.stated or 0.0
        return f"{self.words} ({size_words(there) if self.key == 'machine.disk_gb' else rate_words(there)} there)"


def storage_need(job: Job, saved: Written, export: float) -> StorageNeed:
    """What each node's storage has to do, held against what is stated of it.

    Args:
        job: complete
        saved: one checkpoint
        export: the final model [bytes]
    """
    write, read, disk = asks = _asks(job, saved, export)
    short, unstated = [ask.to_buy for ask in asks if ask.is_short], tuple(ask.key for ask in asks if ask.stated is None)
    verdict: Suffices = "does_not_suffice" if short else "unknown" if unstated else "suffices"
    return StorageNeed(
        verdict=verdict,
        write_bytes_per_second_per_node=write.needed,
        read_bytes_per_second_per_node=read.needed,
        disk_bytes_per_node=disk.needed,
        unstated=unstated,
        sentence=f"storage does not suffice: buy per node {'; '.join(short)}" if short else "",
    )


def _asks(job: Job, saved: Written, export: float) -> tuple[_Ask, _Ask, _Ask]:
    wanted, machine = job.checkpoint, job.machine
    part, whole = saved.size_bytes / writing_nodes(job, saved), restore_bytes_per_node(job, saved.size_bytes)
    write = bytes_per_second_required(part, wanted.write_within_minutes)
    read = bytes_per_second_required(whole, wanted.restore_within_minutes)
    disk = (wanted.keep + 1) * part + export
    writing = f"{rate_words(write, up=True)} to write {size_words(part)} in {wanted.write_within_minutes:g} min"
    reading = f"{rate_words(read, up=True)} to read {size_words(whole)} in {wanted.restore_within_minutes:g} min"
    holding = f"{size_words(disk, up=True)} of disk for {wanted.keep} checkpoints, the one being written and the export"
    return (
        _Ask("machine.storage_write_gb_s", write, machine.storage_write_bytes_per_second, writing),
        _Ask("machine.storage_read_gb_s", read, machine.storage_read_bytes_per_second, reading),
        _Ask("machine.disk_gb", disk, machine.disk_bytes, holding),
    )


def checkpoint_cautions(job: Job, checkpoint: Checkpoint) -> Iterator[Caution]:
    """What of a checkpoint is worth knowing before anything is bought: storage that is too slow or too small, and intervals too long."""
    machine, need, interval = job.machine, checkpoint.storage, checkpoint.interval
    write, read = machine.storage_write_bytes_per_second, machine.storage_read_bytes_per_second
    if write is not None and write * _NEAR < need.write_bytes_per_second_per_node:
        takes = _minutes(checkpoint.write_seconds or 0.0)
        text = f"a checkpoint takes {takes} to write, {job.checkpoint.write_within_minutes:g} are wanted"
        needed = rate_words(need.write_bytes_per_second_per_node, up=True)
        yield Caution("F201", f"{text}: {needed} per node are needed, {rate_words(write)} there")
    if read is not None and read * _NEAR < need.read_bytes_per_second_per_node:
        takes = _minutes(checkpoint.restore_seconds or 0.0)
        text = f"a checkpoint takes {takes} to read back, {job.checkpoint.restore_within_minutes:g} are wanted"
        needed = rate_words(need.read_bytes_per_second_per_node, up=True)
        yield Caution("F202", f"{text}: {needed} per node are needed, {rate_words(read)} there")
    if machine.disk_bytes is not None and machine.disk_bytes * _NEAR < need.disk_bytes_per_node:
        takes = f"{size_words(need.disk_bytes_per_node, up=True)} of disk per node, {size_words(machine.disk_bytes)} are there"
        yield Caution("F203", f"{checkpoint.kept} checkpoints, the one being written and the export take {takes}")
    wanted = job.checkpoint.lose_at_most_minutes * _MINUTE
    if interval.lost_at_most_seconds is not None and interval.lost_at_most_seconds > wanted * _NEAR:
        lost = _minutes(interval.lost_at_most_seconds)
        text = f"up to {lost} of work can be lost, {job.checkpoint.lose_at_most_minutes:g} are wanted: an upload takes too long for that"
        yield Caution("F204", text)


def _minutes(seconds: float) -> str:
    return f"{seconds / _MINUTE:,.1f} min"
