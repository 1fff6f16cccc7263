"""What the customer wants: the worksheet, read and completed."""

from fullstep.job.complete import complete
from fullstep.job.job import (
    Batch,
    Checkpoint,
    Data,
    Evaluation,
    Goal,
    Job,
    Layout,
    Machine,
    Method,
    Optimizer,
    Precision,
    Step,
)
from fullstep.job.worksheet import Worksheet, edit, worksheet_from_mapping

__all__ = [
    "Batch", "Checkpoint", "Data", "Evaluation", "Goal", "Job", "Layout", "Machine", "Method", "Optimizer", "Precision", "Step",
    "Worksheet", "complete", "edit", "worksheet_from_mapping",
]  # fmt: skip
