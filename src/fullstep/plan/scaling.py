"""The same training on 1, 2, 4 ... servers: what each number of them makes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fullstep.ledger import Answer
from fullstep.plan.candidates import RuledOut
from fullstep.plan.ranking import ordered
from fullstep.plan.timer import run_seconds, step_seconds
from fullstep.plan.trial import Refusal, Trial
from fullstep.quantities import Bounds


class ScalingRow(NamedTuple):
    """The best layout on one number of nodes, at the same rows per optimizer step."""

    nodes: int
    trial: Trial | None
    """None: nothing fits"""
    why: str
    """why there is no trial, or no time; empty: both are there"""
    efficiency: float | None
    """likely speed per node against the smallest number of nodes whose time is known; 1: the same"""
    slower_than: int | None
    """a smaller number of nodes on which it is faster"""

    @property
    def step(self) -> Bounds | None:
        """Of one optimizer step [s]; None: not known."""
        return None if self.trial is None else step_seconds(self.trial)

    @property
    def run(self) -> Bounds | None:
        """Of the whole run [s]; None: not known, or no data set is stated."""
        return None if self.trial is None else run_seconds(self.trial)


def scaling(trials: Mapping[int, Sequence[Trial]], ruled_out: Mapping[int, Sequence[RuledOut]]) -> list[ScalingRow]:
    """One row for each number of nodes, ascending; none where there is but one.

    Args:
        trials: timed, without those that do not fit, by number of nodes
        ruled_out: what does not fit, by number of nodes
    """
    if len(trials) < 2:
        return []
    rows: list[ScalingRow] = []
    for nodes in sorted(trials):
        best = next(iter(ordered(trials[nodes])), None)
        why = _why_nothing(ruled_out.get(nodes, ())) if best is None else _why_no_time(best.answer)
        rows.append(_compared(ScalingRow(nodes, best, why, None, None), rows))
    return rows


def _compared(row: ScalingRow, before: Sequence[ScalingRow]) -> ScalingRow:
    """The row beside those of fewer nodes; ``(first nodes * first seconds per token) / (nodes * seconds per token)``."""
    pace = _pace(row)
    if pace is None:
        return row
    known = [(other.nodes, seconds) for other in before if (seconds := _pace(other)) is not None]
    first_nodes, first_seconds = known[0] if known else (row.nodes, pace)
    fastest = min(known, key=lambda pair: pair[1], default=None)
    efficiency = first_nodes * first_seconds / (row.nodes * pace)
    slower_than = fastest[0] if fastest is not None and pace >= fastest[1] else None
    return row._replace(efficiency=efficiency, slower_than=slower_than)


def _pace(row: ScalingRow) -> float | None:
    return None if row.trial is None else row.trial.seconds_per_token


def _why_no_time(answer: Answer) -> str:
    return "" if answer.timing is None else dict(answer.timing.open).get("step", "")


def _why_nothing(ruled_out: Sequence[RuledOut]) -> str:
    """The reason that all have in common, or that it is memory."""
    if not ruled_out:
        return "not searched"
    reasons = {out.closest.error.faults[0].found if isinstance(out.closest, Refusal) else "nothing fits" for out in ruled_out}
    return reasons.pop() if len(reasons) == 1 else "nothing fits"
