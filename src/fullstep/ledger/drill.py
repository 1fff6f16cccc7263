"""What a drill saw: whether a training that was killed went on as if nothing had happened, and what that took."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from fullstep.ledger.checkpoint import Checkpoint

DrillVerdict = Literal["passed", "failed", "void"]
"""void: everything compared equal, and so did a training with something left out on purpose"""


class DrillCheck(NamedTuple):
    """One comparison."""

    leg: str
    """resumed, elsewhere, ..."""
    what: str
    holds: bool | None
    """None: cannot be decided here"""
    found: str
    """in words"""


class DrillControl(NamedTuple):
    """A training in which something of the checkpoint was left out on purpose."""

    without: str
    caught: bool | None
    """None: this training has none of it"""
    found: str
    """where it showed, in words"""


class DrillSave(NamedTuple):
    """One save of the training state, of the slowest rank."""

    mode: str
    step: int
    size_bytes: int
    """of all files"""
    files: int
    """tensors, .metadata and the manifest"""
    stall_seconds: float
    """training stood still"""
    published_seconds: float
    """from the call until the checkpoint counts"""
    state_seconds: float
    digest_seconds: float
    """inside the time of writing: how long writing waited for digests, which are computed beside it; often nothing"""
    slowed_seconds: float
    """what steps took longer than usual while it was written beside them"""


class DrillLoad(NamedTuple):
    """One load, of the slowest rank."""

    ranks_saved: int
    size_bytes: int
    verify_seconds: float
    """reading all files and comparing their digests"""
    load_seconds: float
    """reading tensors"""
    apply_seconds: float
    """putting them into model, optimizer and the rest"""
    rng: str
    """restored, new streams"""

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.verify_seconds + self.load_seconds + self.apply_seconds


class DrillRestart(NamedTuple):
    """From the failure to the end of the first step after it, of the slowest rank."""

    parts: tuple[tuple[str, float], ...]
    """(what, seconds), one after another"""

    @property
    def seconds(self) -> float:
        """All of it."""
        return sum(seconds for _, seconds in self.parts)


class DrillElsewhere(NamedTuple):
    """The resumption on other ranks or in another layout."""

    ranks: int
    strategy: str
    loss_difference: float
    """the largest of any step, relative; infinite where one loss is no number or no step is common to both"""
    gate: float
    """above it is no rounding"""
    gate_why: str
    mildest_fault: float
    """loss difference of the mildest fault that is known to pass silently, made on purpose; what the gate has to catch"""
    differences: tuple[tuple[str, float, str], ...]
    """(kind of state, largest difference relative to the tensor's largest value, tensor) at the end; infinite: of no number to a number"""
    load: DrillLoad
    why: str
    """what differs and why"""


class DrillExport(NamedTuple):
    """A full export, written and read back."""

    size_bytes: int
    files: int
    seconds: float
    tensors: int
    differing: tuple[str, ...]
    """tensors that came back otherwise"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drill:
    """The whole of it. Sizes in bytes, times in seconds."""

    verdict: DrillVerdict
    reason: str
    model: str
    device: str
    ranks: int
    strategy: str
    saved_at: int
    """step"""
    steps: int
    rows_per_step: int
    checks: tuple[DrillCheck, ...]
    controls: tuple[DrillControl, ...]
    save: DrillSave
    warm_up: DrillSave
    """the first save of the process"""
    load: DrillLoad
    restart: DrillRestart
    step_seconds: float
    """of an undisturbed step"""
    raw_bytes: int
    raw_write_seconds: float
    """as many raw writers, the same bytes, the same folder"""
    raw_read_seconds: float
    staging_bytes: int | None
    """host memory beside what training takes, of all ranks, at most; None: the system does not say"""
    staging_kept_bytes: int | None
    """of it what stays"""
    elsewhere: DrillElsewhere | None
    export: DrillExport | None
    notes: tuple[str, ...]
    """where the drilled program is not the worksheet's"""
    versions: tuple[tuple[str, str], ...]
    folder: str
    """of its checkpoints"""
    is_kept: bool
    """the folder is still there"""
    seconds: float
    """that the drill took"""
    blocks: tuple[int, int] | None = None
    """(drilled, of the whole model) where fewer were drilled"""
    predicted: Checkpoint | None = None
    """what is said of its checkpoints by the formulas; None: they do not cover this model"""
    predicted_with: Literal["stated", "measured"] = "stated"
    """whose rates of storage the predicted times take: the worksheet's, or those of raw writers and readers, where it states none"""

    @property
    def size_difference(self) -> float | None:
        """Measured over predicted size, less 1; None: nothing was predicted."""
        return None if self.predicted is None else self.save.size_bytes / self.predicted.predicted_bytes - 1
