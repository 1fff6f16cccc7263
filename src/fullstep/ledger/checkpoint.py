"""What a checkpoint holds, takes and needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from fullstep.evidence import Evidence
from fullstep.quantities import Bounds

Container = Literal["distributed", "deepspeed", "trainer", "full", "adapter"]
"""distributed: torch.distributed.checkpoint, each rank its part. deepspeed: its partitions. trainer: the folder of transformers' Trainer.
full: weights and states put together on rank 0. adapter: the Trainer's folder with what trains alone"""
Content = Literal[
    "weights", "frozen_weights", "adapters", "master_weights", "optimizer_states", "weights_again", "rng", "scheduler", "data_position",
    "settings", "container",
]  # fmt: skip
Suffices = Literal["suffices", "does_not_suffice", "unknown"]
IntervalBoundBy = Literal["work_that_may_be_lost", "upload", "unknown"]
"""what decides how far apart saves come. upload: of an asynchronous save, which takes more than half of the work that may be lost. unknown:
asynchronous saves to storage whose rate is not stated"""


class CheckpointPart(NamedTuple):
    """A part of the files of one checkpoint; the parts add up to all that is predicted."""

    what: Content
    size_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointInterval:
    """How often to save so that no more work is lost than may be, and how often would lose least to failures [s]."""

    seconds: float
    """what the run is timed and billed with"""
    lost_at_most_seconds: float | None
    """of work, when a failure comes at the worst moment; more than is wanted where ``bound_by`` is upload, None where it is unknown"""
    bound_by: IntervalBoundBy
    least_loss_seconds: Bounds | None
    """by which saves and failures of hardware together cost least (Daly); None: what a save takes is not known"""
    mean_between_failures_seconds: Bounds
    """of hardware, of all GPUs together; not of machines that are taken away"""
    least_loss_is_shorter: bool | None
    """than ``seconds``: saving more often would lose less; None: as before"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageNeed:
    """Whether the stated storage suffices, and what to buy. Rates and sizes are of one node."""

    verdict: Suffices
    write_bytes_per_second_per_node: float
    read_bytes_per_second_per_node: float
    disk_bytes_per_node: float
    unstated: tuple[str, ...]
    """keys of the worksheet without which the verdict is not known"""
    sentence: str
    """what does not suffice and what would; empty where nothing is short"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """One resumable checkpoint, the final model apart from it, and what both ask of a machine."""

    evidence: Evidence
    container: Container
    contents: tuple[CheckpointPart, ...]
    """as predicted, also where a pilot measured the size"""
    resumable_bytes: float
    """all files of one"""
    files: int
    """at least"""
    export_bytes: float
    export_files: int
    """that hold weights"""
    write_bytes_per_second_required: float
    """of all nodes together, to be written within ``checkpoint.write_within_minutes``"""
    read_bytes_per_second_required: float
    """of all nodes together, to be read back within ``checkpoint.restore_within_minutes``"""
    average_write_bytes_per_second: float
    restore_bytes: float
    """what all ranks read together: replicas read it all, each for itself"""
    write_seconds: float | None
    """of one save; None: ``machine.storage_write_gb_s`` is not stated"""
    stall_seconds: Bounds | None
    """how long it holds training up; None: as before"""
    restore_seconds: float | None
    """None: ``machine.storage_read_gb_s`` is not stated"""
    interval: CheckpointInterval
    staging_host_bytes: Bounds
    """host memory of the node that needs most, beside what training takes"""
    kept: int
    disk_bytes: float
    """kept ones, the one being written and the export, over all nodes"""
    storage: StorageNeed

    @property
    def predicted_bytes(self) -> float:
        """What the parts add up to."""
        return sum(part.size_bytes for part in self.contents)
