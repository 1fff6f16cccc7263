"""Checkpoints: what they hold, how large they are, how long they take, and what they ask of hosts and disks."""

from fullstep.physics.checkpointing.containers import Written, container_of, export_bytes, weight_files, written
from fullstep.physics.checkpointing.contents import Contents, contents_of
from fullstep.physics.checkpointing.pace import checkpoint_seconds, interval_seconds, resumable_bytes, stall_seconds, writing_seconds

__all__ = [
    "Contents", "Written", "checkpoint_seconds", "container_of", "contents_of", "export_bytes", "interval_seconds", "resumable_bytes",
    "stall_seconds", "weight_files", "writing_seconds", "written",
]  # fmt: skip
