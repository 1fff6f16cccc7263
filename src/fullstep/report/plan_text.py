"""The main job's report: one verdict, the best option line by line, what else fits, what does not and why."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal

from fullstep.plan.confirm import why_untraced
from fullstep.plan.deadline import hours_words
from fullstep.plan.ranking import rule
from fullstep.plan.rejections import Rejection
from fullstep.plan.savers import change_words
from fullstep.plan.search import Plan, option_words
from fullstep.plan.timer import step_seconds
from fullstep.plan.trial import Trial
from fullstep.quantities import CURRENCIES, Bounds, money
from fullstep.report.checkpoint_text import checkpoint_lines
from fullstep.report.cost_text import cost_lines, market_lines
from fullstep.report.instants import instants_lines
from fullstep.report.paper import Paper
from fullstep.report.scaling import scaling_lines
from fullstep.report.text import closing_lines, memory_lines, other_lines, remedy_lines
from fullstep.report.timing_text import duration, timing_lines
from fullstep.report.wording import VERDICTS, gib, headline, span

_INK = {"nothing_fits": "red", "undecided": "yellow"}
_LATE_SHOWN = 3
"""layouts that end too late and are named"""
_SHOWN = 8
"""options and rejections that are worth a line each; the rest is counted"""


def plan_text(plan: Plan, paper: Paper, today: date | None = None) -> str:
    """The whole report on a search; ``today``: by which prices are old, None: the day it is."""
    best = plan.shown
    day = today or datetime.now(tz=UTC).date()
    verdict = plan.verdict
    lines = [paper.ink(piece, "bold") for piece in paper.sentence(headline(best.job), indent=0)]
    ink = _INK.get(verdict.answer, "green")
    lines += ["", *(paper.ink(piece, "bold", ink) for piece in paper.sentence(verdict.sentence)), ""]
    if best.changes:
        lines += paper.entry("Change", change_words(best.changes))
    lines += memory_lines(best.answer, paper)
    lines += ["", *instants_lines(best.answer, paper), ""]
    lines += other_lines(best.job, best.answer, paper)
    lines += timing_lines(best.job, best.answer, paper)
    lines += checkpoint_lines(best.answer, paper)
    lines += cost_lines(best.rentals, best.job, paper, day)
    lines += scaling_lines(plan.scaling, paper)
    lines += market_lines(plan, paper, day) if plan.is_market else option_lines(plan.options, paper)
    lines += remedy_lines(plan.remedies, paper)
    lines += rejection_lines(plan.rejected, paper)
    for number, missing in enumerate(plan.missing):
        lines += paper.entry("Missing" if number == 0 else "", f"{missing.key}: {missing.why}; {missing.how}")
    lines += closing_lines(best.answer, paper)
    if verdict.decide_by is not None:
        lines += paper.entry("Decide by", verdict.decide_by)
    return paper.finish(lines)


def option_lines(found: Sequence[Trial], paper: Paper) -> list[str]:
    """What else fits beside the first, best first. Where one of them was traced, each says how it is known."""
    lines: list[str] = []
    options = found[1:]
    traced = any(trial.answer.trace is not None or why_untraced(trial) for trial in options)
    for number, trial in enumerate(options[:_SHOWN]):
        memory = trial.answer.memory
        there = "" if memory.usable_bytes is None else f" of {gib(memory.usable_bytes)}"
        note = "" if trial.fits else f" ({VERDICTS[trial.verdict]})"
        needed = f"{span(memory.needed_bytes)} GiB needed{there}{note}{_time_words(trial)}{_witness_words(trial) if traced else ''}"
        lines += paper.entry("Also" if number == 0 else "", f"{option_words(trial)}: {needed}")
    if len(options) > _SHOWN:
        lines += paper.entry("", f"and {len(options) - _SHOWN} more (--json lists all)")
    return lines + (paper.entry("Ranked by", rule(found)) if options else [])


def _time_words(trial: Trial) -> str:
    """The likely step, and where there is a deadline, the run."""
    step, ending = step_seconds(trial), trial.ending
    measured = " measured" if "step_seconds" in trial.job.measured else ""
    words = "" if step is None else f" · {duration(Bounds.exact(step.likely))} a step{measured}"
    if ending is None or ending.seconds is None:
        return words
    on = "" if ending.on_gbit_s is None else f" on {ending.on_gbit_s:,.0f} Gbit/s"
    return f"{words} · {hours_words(ending.seconds)}{on}{', which may be too late' if trial.may_be_late else ''}"


def _witness_words(trial: Trial) -> str:
    why = why_untraced(trial)
    return f" · {trial.answer.memory.evidence}" + (f" ({why})" if why else "")


def rejection_lines(rejections: Sequence[Rejection], paper: Paper) -> list[str]:
    """What does not fit and why, grouped; the levels of one layout in one line."""
    lines: list[str] = []
    groups = _grouped(rejections)
    for number, group in enumerate(groups[:_SHOWN]):
        lines += paper.entry("Not" if number == 0 else "", rejection_words(group))
    if len(groups) > _SHOWN:
        rest = sum(out.candidates for group in groups[_SHOWN:] for out in group)
        lines += paper.entry("", f"and {len(groups) - _SHOWN} more reasons for {rest} candidates (--json lists all)")
    return lines


def _grouped(rejections: Sequence[Rejection]) -> list[list[Rejection]]:
    """Those with the same reason together, in the order of the first of each."""
    found: dict[tuple[object, ...], list[Rejection]] = {}
    for out in rejections:
        found.setdefault(_layout_of(out), []).append(out)
    return list(found.values())


def _layout_of(out: Rejection) -> tuple[object, ...]:
    """What rejections in one line have in common: the layout and what ran out, the deadline, the budget, what cards cannot do; one without
    levels stands alone."""
    if out.limit in ("time", "budget"):
        return (out.limit, out.available)
    if out.offers and out.limit == "support":
        return (out.limit, out.detail)
    known = out.level and out.needed is not None and out.available is not None
    return (out.what.removesuffix(f", {out.level}"), out.limit, out.available) if known else (id(out),)


def rejection_words(group: Sequence[Rejection]) -> str:
    """One reason in one sentence: of a layout with all its levels, or of one rejection. The last level needs least."""
    out = group[-1]
    if out.limit in ("time", "budget"):
        return _late_words(group)
    if out.limit == "support" and len(group) > 1:
        return f"{', '.join(each.what for each in group)}: {out.detail}"
    if out.limit in ("network", "availability") or out.needed is None or out.available is None:
        return f"{out.what}: {out.detail}{_remedy_words(out, 'would be faster')}"
    what = "host memory " if out.limit == "host_memory" else ""
    there = f"{gib(out.available)} there{_counted(group)}{_remedy_words(out)}"
    if len(group) == 1:
        return f"{out.what}: at least {gib(out.needed)} GiB {what}needed {out.detail}, {there}"
    levels = [f"{gib(each.needed or 0)} with {each.level}".replace("with no recomputation", "without") for each in group]
    levels[0] = levels[0].replace(" ", f" GiB {what}needed ", 1)
    return f"{out.what.removesuffix(f', {out.level}')}: at least {', '.join(levels)}, {there}"


def _late_words(group: Sequence[Rejection]) -> str:
    """What ends too late or costs too much: the nearest with their figures, the rest counted."""
    known = sorted((out for out in group if out.needed is not None), key=lambda out: out.needed or 0.0)
    if not known:
        return f"{group[0].what}: {group[0].detail}"
    first, is_time = known[0], group[0].limit == "time"
    told = list(dict.fromkeys(f"{out.what} {_limited(out.needed or 0.0, out)}" for out in known))
    told[_LATE_SHOWN:] = [f"{len(told) - _LATE_SHOWN} more"] if len(told) > _LATE_SHOWN else []
    there = f"{_limited(first.available or 0.0, first)} there{_counted(group)}"
    would = _remedy_words(first, "would end in time") if is_time else ""
    return f"{'too late' if is_time else 'over the budget'}: {', '.join(told)}; {there}{would}"


def _counted(group: Sequence[Rejection]) -> str:
    """How many are out for one reason: candidates of a machine's search, offers of the market's."""
    count = sum(out.candidates for out in group)
    return f", {count} {'offers' if group[0].offers else 'candidates'}" if count > 1 else ""


def _limited(amount: float, out: Rejection) -> str:
    """Hours, or money."""
    if out.unit == "hours":
        return f"{amount:,.4g} h" if amount == out.available else f"{amount:,.1f} h"
    return next((money(Decimal(repr(amount)), currency) for currency in CURRENCIES if currency == out.unit), f"{amount:,.2f}")


def _remedy_words(out: Rejection, would: str = "would fit") -> str:
    """The smallest change that would help, as worksheet keys."""
    if not out.remedy:
        return ""
    stated = {key: value for key, value in out.remedy.items() if value is not None}
    keys = ", ".join(f"{key} = {str(value).lower() if isinstance(value, bool) else value}" for key, value in stated.items())
    return f"; {would} with {keys}" + (" (alters the training)" if out.changes_training else "")
