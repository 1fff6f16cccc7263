"""What each number of servers makes of the same training: as a table for the terminal, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from fullstep.ledger import StepTime, Traffic
from fullstep.plan.deadline import hours_of, hours_words
from fullstep.plan.layouts import layout_name
from fullstep.plan.savers import level_words
from fullstep.plan.scaling import ScalingRow
from fullstep.plan.timer import needed_gbit_s
from fullstep.plan.trial import Trial
from fullstep.quantities import Bounds
from fullstep.report.paper import LABEL_WIDTH, Paper

_MANY = 10_000
"""servers from which on the column has no room for the word"""


def scaling_row_as_dict(row: ScalingRow) -> dict[str, Any]:
    """One number of servers; what is not known is null, and ``why`` says why."""
    step, traffic = _step_of(row), _traffic_of(row)
    rate = None if traffic is None else traffic.required_gbit_s_per_node
    exposed = None if step is None else step.exposed_communication_fraction
    return {
        "nodes": row.nodes,
        "gpus": None if row.trial is None else row.nodes * row.trial.job.machine.gpus,
        "layout": None if row.trial is None else _layout_words(row),
        "changes": None if row.trial is None else dict(row.trial.changes),
        "verdict": "does_not_fit" if row.trial is None else row.trial.verdict,
        "step_seconds": None if row.step is None else row.step.as_dict(),
        "run_seconds": None if row.run is None else row.run.as_dict(),
        "efficiency": row.efficiency,
        "exposed_communication_fraction": None if exposed is None else exposed.as_dict(),
        "required_gbit_s_per_node": None if rate is None else rate.as_dict(),
        "slower_than_nodes": row.slower_than,
        "why": row.why or None,
    }


def scaling_lines(rows: Sequence[ScalingRow], paper: Paper) -> list[str]:
    """A line for each number of servers: hours of the run, or seconds of a step where no data set is stated."""
    if not any(row.trial is not None and (row.step is not None or needed_gbit_s(row.trial) is not None) for row in rows):
        return []
    of_run = any(row.run is not None for row in rows)
    head = f"{'run' if of_run else 'step':>7} {'low-high':>15}  {'efficiency':>10}  {'not hidden':>10}  layout"
    lines = paper.entry("Scaling", head)
    told = len(rows) - _alike_at_the_end(rows)
    for place, row in enumerate(rows[: told + 1]):
        label = f"  {row.nodes:,} or more" if place == told and told < len(rows) - 1 else f"  {_servers(row.nodes)}"
        figures, layout = _row_words(row, of_run)
        if len(figures) + len(layout) > paper.width - LABEL_WIDTH - 4 or not figures:
            lines += paper.entry(label, figures or layout) + (paper.entry("", layout) if figures else [])
        else:
            lines += paper.entry(label, f"{figures}  {layout}")
    return lines


def _alike_at_the_end(rows: Sequence[ScalingRow]) -> int:
    """Rows at the end on which nothing runs: the first of them speaks for all, with its own reason."""
    return sum(1 for _ in takewhile(lambda row: row.trial is None, reversed(rows)))


def _row_words(row: ScalingRow, of_run: bool) -> tuple[str, str]:
    """The figures in their columns, empty where there are none, and the layout or the reason."""
    seconds, step = row.run if of_run else row.step, _step_of(row)
    if row.trial is None:
        return "", row.why
    if seconds is None or step is None or row.efficiency is None:
        rate = needed_gbit_s(row.trial)
        needed = "" if rate is None else f"; {rate:,.0f} Gbit/s per server keep communication under a tenth of the step"
        return "", f"{_layout_words(row)}: time not known, {row.why.partition(':')[0]}{needed}{_condition_words(row.trial)}"
    likely, span = _columns(seconds, of_run)
    exposed = step.exposed_communication_fraction
    hidden = "-" if exposed is None else f"{100 * exposed.likely:.0f}"
    slower = f", slower than {_servers(row.slower_than)}" if row.slower_than is not None else ""
    notes = [*([] if row.trial.fits else [row.trial.verdict]), *([] if step.evidence == "estimated" else [step.evidence])]
    noted = f" ({', '.join(notes)})" if notes else ""
    figures = f"{likely:>7} {span:>15}  {100 * row.efficiency:>8.0f} %  {hidden:>8} %"
    return figures, f"{_layout_words(row)}{noted}{slower}"


def _condition_words(trial: Trial) -> str:
    """What the run would take on the network that it needs."""
    ending = trial.ending
    return "" if ending is None or ending.seconds is None or ending.on_gbit_s is None else f": {hours_words(ending.seconds)}"


def _columns(seconds: Bounds, of_run: bool) -> tuple[str, str]:
    """The likely value with its unit, and the bounds."""
    if of_run:
        low, likely, high = hours_of(seconds)
        return f"{likely} h", f"{low}-{high} h"
    low, likely, high = (f"{end:,.2f}" for end in seconds)
    return f"{likely} s", f"{low}-{high} s"


def _layout_words(row: ScalingRow) -> str:
    if row.trial is None:
        return ""
    cost = level_words(row.trial.job)
    return layout_name(row.trial.job.layout) + (f", {cost}" if cost else "")


def _servers(nodes: int) -> str:
    return "1 server" if nodes == 1 else f"{nodes} servers" if nodes < _MANY else f"{nodes:,}"


def _step_of(row: ScalingRow) -> StepTime | None:
    timing = None if row.trial is None else row.trial.answer.timing
    return None if timing is None else timing.step


def _traffic_of(row: ScalingRow) -> Traffic | None:
    timing = None if row.trial is None else row.trial.answer.timing
    return None if timing is None else timing.traffic
