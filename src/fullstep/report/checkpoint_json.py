"""Checkpoints as the contract's object: bytes are whole numbers, times are seconds."""

from __future__ import annotations

from typing import Any

from fullstep.ledger import Checkpoint, CheckpointInterval, StorageNeed


def checkpoint_as_dict(checkpoint: Checkpoint | None) -> dict[str, Any] | None:
    """The object ``checkpoint``."""
    if checkpoint is None:
        return None
    stall = checkpoint.stall_seconds
    return {
        "evidence": checkpoint.evidence,
        "container": checkpoint.container,
        "resumable_bytes": round(checkpoint.resumable_bytes),
        "contents": [{"what": part.what, "bytes": round(part.size_bytes)} for part in checkpoint.contents],
        "files": checkpoint.files,
        "export_bytes": round(checkpoint.export_bytes),
        "export_files": checkpoint.export_files,
        "write_bytes_per_second_required": round(checkpoint.write_bytes_per_second_required),
        "read_bytes_per_second_required": round(checkpoint.read_bytes_per_second_required),
        "average_write_bytes_per_second": round(checkpoint.average_write_bytes_per_second),
        "restore_bytes": round(checkpoint.restore_bytes),
        "write_seconds": checkpoint.write_seconds,
        "stall_seconds": None if stall is None else stall.as_dict(),
        "restore_seconds": checkpoint.restore_seconds,
        "interval_seconds": checkpoint.interval.seconds,
        "interval": _interval(checkpoint.interval),
        "staging_host_bytes": round(checkpoint.staging_host_bytes.likely),
        "staging_host_range_bytes": checkpoint.staging_host_bytes.as_whole(),
        "kept": checkpoint.kept,
        "disk_bytes": round(checkpoint.disk_bytes),
        "storage": _storage(checkpoint.storage),
    }


def _interval(interval: CheckpointInterval) -> dict[str, Any]:
    least = interval.least_loss_seconds
    return {
        "bound_by": interval.bound_by,
        "lost_at_most_seconds": interval.lost_at_most_seconds,
        "least_loss_seconds": None if least is None else least.as_dict(),
        "least_loss_is_shorter": interval.least_loss_is_shorter,
        "mean_between_failures_seconds": interval.mean_between_failures_seconds.as_dict(),
    }


def _storage(need: StorageNeed) -> dict[str, Any]:
    return {
        "verdict": need.verdict,
        "write_bytes_per_second_per_node": round(need.write_bytes_per_second_per_node),
        "read_bytes_per_second_per_node": round(need.read_bytes_per_second_per_node),
        "disk_bytes_per_node": round(need.disk_bytes_per_node),
        "unstated": list(need.unstated),
        "sentence": need.sentence,
    }
