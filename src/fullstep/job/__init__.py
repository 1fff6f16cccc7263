"""What the customer wants: the worksheet, read and completed."""

from fullstep.job.cautions import CAUTIONS, CautionKind
from fullstep.job.complete import complete, settings_of
from fullstep.job.editing import edit
from fullstep.job.flags import Flag, apply_overrides, flag_overrides, set_overrides, worksheet_flags
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
    Settings,
    Step,
)
from fullstep.job.reading import read_mapping, read_worksheet, worksheet_from_json
from fullstep.job.toml_text import blank_worksheet, worksheet_to_toml
from fullstep.job.validation import worksheet_from_mapping
from fullstep.job.worksheet import Worksheet

__all__ = [
    "CAUTIONS", "Batch", "CautionKind", "Checkpoint", "Data", "Evaluation", "Flag", "Goal", "Job", "Layout", "Machine", "Method",
    "Optimizer", "Precision", "Settings", "Step", "Worksheet", "apply_overrides", "blank_worksheet", "complete", "edit", "flag_overrides",
    "read_mapping", "read_worksheet", "set_overrides", "settings_of", "worksheet_flags", "worksheet_from_json", "worksheet_from_mapping",
    "worksheet_to_toml",
]  # fmt: skip
