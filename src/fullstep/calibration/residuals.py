"""A record beside its own estimate and its own trace, line by line: counters, instants, what stays between steps, time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

from fullstep.calibration.evidence import steady_peaks
from fullstep.calibration.recorded import Recorded
from fullstep.hardware import device_overheads
from fullstep.ledger import Instant, Memory, MemoryEstimate, StepTime
from fullstep.ledger.probe import ProbedRank, instants_of
from fullstep.quantities import Bounds

_OTHER_PEAKS = ("load", "evaluation", "save")
_ON_TOP = ("forward", "loss", "backward", "second_forward", "optimizer_step")


class BesideLine(NamedTuple):
    """One figure of a record, and what was said of it. None: nothing was."""

    group: Literal["peaks", "instants", "mechanisms", "time"]
    what: str
    unit: Literal["bytes", "seconds"]
    measured: float
    estimated: Bounds | None
    traced: float | None = None

    @property
    def difference(self) -> float | None:
        """Estimated over measured less 1, as in the table of accuracy."""
        return None if self.estimated is None or self.measured <= 0 else self.estimated.likely / self.measured - 1

    @property
    def traced_difference(self) -> float | None:
        """The same of the trace."""
        return None if self.traced is None or self.measured <= 0 else self.traced / self.measured - 1

    @property
    def is_inside(self) -> bool:
        """The bounds hold what was measured, or none were said (an instant has no bounds of its own)."""
        bounds = self.estimated
        return bounds is None or bounds.low == bounds.high or bounds.low <= self.measured <= bounds.high


def beside(record: Recorded, estimate: MemoryEstimate, step: StepTime | None, traced: MemoryEstimate | None = None) -> list[BesideLine]:
    """Every figure that was measured.

    Args:
        record: with its own job
        estimate: [bytes] the formulas' account of that job
        step: of that job; None: not known
        traced: [bytes] the trace's account of that job; None: there is none
    """
    workspace = float(device_overheads(record.job.machine.card).cublas_workspace_bytes) if record.on_processors else 0.0
    lines = []
    for name, size in steady_peaks(record.probe).items():
        bounds, seen = getattr(estimate, name), None if traced is None else getattr(traced, name).likely
        lines.append(BesideLine("peaks", name, "bytes", size, _less(bounds, workspace), None if seen is None else seen - workspace))
    worst = record.probe.worst
    if worst is not None:
        every = instant_lines(worst, estimate, traced, workspace)
        lines += [line for line in every if line.estimated is not None or line.traced is not None]
        lines += _mechanism_lines(record, worst, estimate, workspace)
    seconds = record.probe.median_step_seconds
    if seconds is not None and not record.on_processors:
        lines.append(BesideLine("time", "step", "seconds", seconds, None if step is None else step.seconds))
    return lines


class _Account(Protocol):
    """Of a step, by formulas or by a trace."""

    @property
    def instants(self) -> tuple[Instant, ...]:
        """What is alive at each."""


def instant_lines(
    worst: ProbedRank, estimate: MemoryEstimate | Memory | None, traced: _Account | None, workspace: float
) -> list[BesideLine]:
    """Each instant of a rank's last counted step, and loading, evaluation and saving, with what was said of them.

    Args:
        worst: the rank with the highest peak
        estimate: [bytes] by the formulas; None: they do not know the model
        traced: [bytes] as a trace saw it; None: there is none
        workspace: of a GPU's libraries, which the rank did not have [bytes]
    """
    said: dict[str, float] = {}
    if estimate is not None:
        said = {each.at: each.allocated_bytes - workspace for each in estimate.instants}
        others = {name: getattr(estimate.other_peaks, name) for name in _OTHER_PEAKS}
        said |= {name: size - (0.0 if name == "load" else workspace) for name, size in others.items() if size is not None}
    seen: dict[str, float] = {} if traced is None else {each.at: each.allocated_bytes - workspace for each in traced.instants}
    return [
        BesideLine("instants", at, "bytes", size, Bounds.exact(said[at]) if at in said else None, seen.get(at))
        for at, size in instants_of(worst.memory).items()
        if at in (*_ON_TOP, *_OTHER_PEAKS)
    ]


def _mechanism_lines(record: Recorded, worst: ProbedRank, estimate: MemoryEstimate, workspace: float) -> list[BesideLine]:
    """What is there all the time (weights, states, buffers), and what each instant puts on top of it: where a difference comes from."""
    kept = record.job.step.gradients_cleared == "before_backward"
    between = _between_steps(worst)
    if between is None:
        return []
    lines = [BesideLine("mechanisms", "between steps", "bytes", between, Bounds.exact(_resident(estimate.instants, kept) - workspace))]
    measured = instants_of(worst.memory)
    for instant in estimate.instants:
        if instant.at in _ON_TOP and instant.at in measured:
            on_top = instant.allocated_bytes - _resident(estimate.instants, kept)
            what = f"{instant.at}, on top"
            lines.append(BesideLine("mechanisms", what, "bytes", measured[instant.at] - between, Bounds.exact(on_top)))
    return lines


def _between_steps(worst: ProbedRank) -> float | None:
    """Allocated when the last counted step begins: at the end of the one before; None: only one was counted."""
    last = max(each.step for each in worst.memory)
    before = [each for each in worst.memory if each.step == last - 1]
    return float(before[-1].allocated_end_bytes) if before and last > 1 else None


def _resident(instants: Sequence[Instant], kept: bool) -> float:
    """By the formulas, when the forward pass of the steady step begins."""
    held = next((each.holdings for each in instants if each.at == "forward"), instants[0].holdings)
    return held.weights + held.optimizer_states + held.buffers + (held.gradients if kept else 0.0)


def _less(bounds: Bounds, amount: float) -> Bounds:
    return Bounds(*(end - amount for end in bounds))
