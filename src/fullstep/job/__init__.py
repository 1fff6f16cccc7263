"""What the customer wants: the worksheet, read and completed."""

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

__all__ = [
    "Batch", "Checkpoint", "Data", "Evaluation", "Goal", "Job", "Layout", "Machine", "Method", "Optimizer", "Precision", "Step",
]  # fmt: skip
