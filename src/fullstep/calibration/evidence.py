"""What records do to an estimate.

The same worksheet: what was measured stands in the place of what was estimated. A near one: where it lies within the bounds of its own
estimate, the bounds here are drawn in around the same place. Nothing leaves the estimate's own bounds, and no formula is changed: a
record outside of its own bounds narrows nothing, it shows that a mechanism is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

from fullstep.calibration.narrowing import COMMUNICATION
from fullstep.calibration.recorded import Match, Recorded
from fullstep.errors import Fault
from fullstep.hardware import Card, device_overheads
from fullstep.ledger import MemoryEstimate, StepTime
from fullstep.ledger.probe import Probe
from fullstep.quantities import GIB, Bounds

UsedKind = TypeVar("UsedKind")
_BESIDE = ("load", "evaluation", "save")
"""phases outside of the step"""
_COUNTERS = (("allocated", "allocated_peak_bytes"), ("reserved", "reserved_peak_bytes"), ("device", "device_used_bytes"))


class Residual(NamedTuple):
    """One figure of a record beside its own estimate: allocated, reserved, device [bytes]; compute, communication [s]."""

    what: str
    measured: float
    estimated: Bounds

    @property
    def place(self) -> float | None:
        """From -1 (the low bound) by way of 0 (likely) to 1 (the high bound); None: outside.

        >>> Residual("", 11, Bounds(8, 10, 14)).place, Residual("", 9, Bounds(8, 10, 14)).place, Residual("", 15, Bounds(8, 10, 14)).place
        (0.25, -0.5, None)
        """
        low, likely, high = self.estimated
        if not low <= self.measured <= high:
            return None
        room = high - likely if self.measured > likely else likely - low
        return (self.measured - likely) / room if room > 0 else 0.0


class Used(NamedTuple):
    """A record that was taken into account."""

    name: str
    match: Match
    residuals: tuple[Residual, ...] = ()
    """of a near one: its figures beside its own estimate"""
    notes: tuple[str, ...] = ()
    """where the program that was measured is not the worksheet's"""


class UsedOf(NamedTuple):
    """What a record did to the options of a plan; where there are none, to what comes closest."""

    name: str
    replaced: int
    """options of which it replaces what was estimated"""
    narrowed: int
    """of which it narrows the bounds; a traced peak stands as traced"""
    linked: int
    """whose links it measured"""
    options: int
    """of so many"""
    why: str
    """of the first of them"""


class Records(NamedTuple, Generic[UsedKind]):
    """What became of the records of a folder."""

    used: Sequence[UsedKind]
    refused: Sequence[tuple[str, str]]
    """record and why; of a plan, of its first option"""
    faults: Sequence[Fault]
    """of files that are no records"""


def steady_peaks(probe: Probe) -> dict[str, int]:
    """The highest value of each counter in the last counted step on any rank [bytes], loading and what follows the step left out."""
    last = max((each.step for rank in probe.ranks for each in rank.memory), default=0)
    step = [each for rank in probe.ranks for each in rank.memory if each.step == last and each.phase not in _BESIDE]
    found = {}
    for name, field in _COUNTERS:
        values = [value for each in step if (value := getattr(each, field)) is not None]
        if values:
            found[name] = max(values)
    return found


def measured_of(record: Recorded, card: Card | None) -> dict[str, float]:
    """A record's figures under the keys of ``[measured]``; of processors what was allocated, with the workspaces of a GPU's libraries.

    Args:
        record: of the same worksheet
        card: of the worksheet that asks
    """
    peaks, probe = steady_peaks(record.probe), record.probe
    if record.on_processors:
        workspace_bytes = device_overheads(card).cublas_workspace_bytes
        return {"allocated_peak_gib": (peaks["allocated"] + workspace_bytes) / GIB} if "allocated" in peaks else {}
    found = {f"{name}_peak_gib": size / GIB for name, size in peaks.items()}
    if probe.median_step_seconds is not None:
        found["step_seconds"] = probe.median_step_seconds
        if (share := _exposed_share(probe)) is not None:
            found["exposed_communication_fraction"] = share
    return found


def residuals_of(record: Recorded, estimate: MemoryEstimate, step: StepTime | None) -> tuple[Residual, ...]:
    """A record's figures beside the formulas' account of its own worksheet.

    Args:
        record: of a GPU
        estimate: [bytes] of its own worksheet
        step: of its own worksheet; None: not known
    """
    found = [Residual(name, size, getattr(estimate, name)) for name, size in steady_peaks(record.probe).items()]
    seconds = record.probe.median_step_seconds
    if step is None or seconds is None:
        return tuple(found)
    share = _exposed_share(record.probe)
    waited = seconds * (record.probe.data_wait_fraction or 0.0)
    if share is None:  # what communication took is not known: the step as a whole
        return (*found, Residual("step", seconds - waited, step.seconds))
    computing, talking = _split(step)
    found.append(Residual("compute", seconds * (1 - share) - waited, computing))
    return (*found, Residual("communication", seconds * share, talking)) if record.probe.world_size > 1 else tuple(found)


def places_of(residuals: Sequence[Residual]) -> dict[str, tuple[float, ...]]:
    """Of each figure, where near records lie in their own bounds; those outside are left out."""
    found: dict[str, tuple[float, ...]] = {}
    for each in residuals:
        if each.place is not None:
            found[each.what] = (*found.get(each.what, ()), each.place)
    return found


def _exposed_share(probe: Probe) -> float | None:
    """Of a step, communication that was not hidden; a single rank has none."""
    return 0.0 if probe.world_size == 1 else probe.exposed_communication_fraction


def _split(step: StepTime) -> tuple[Bounds, Bounds]:
    """Seconds of computing, and of waiting for one another."""
    nothing = Bounds(0, 0, 0)
    talking = sum((part.seconds for part in step.parts if part.bound_by == COMMUNICATION), nothing)
    return sum((part.seconds for part in step.parts if part.bound_by != COMMUNICATION), nothing), talking
