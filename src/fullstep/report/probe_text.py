"""A probe for the terminal: what was measured on real hardware, with estimate and trace beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast, get_args

from fullstep.calibration.residuals import BesideLine
from fullstep.job import Settings
from fullstep.ledger import Moment
from fullstep.ledger.probe import Probe
from fullstep.ledger.trace import Phase
from fullstep.plan.layouts import layout_name
from fullstep.quantities import Bounds
from fullstep.report.paper import Paper
from fullstep.report.timeline import moment_words, peak_of, timeline_lines
from fullstep.report.wording import INSTANTS, headline, measured_size, unit_of

_OUTCOMES = {
    "completed": "The probe completed", "out_of_memory": "The probe RAN OUT OF MEMORY", "rank_died": "A rank DIED",
    "hung": "A rank HANGS", "stopped": "The probe was stopped",
}  # fmt: skip
_MORE_INSTANTS = {"load": "loading", "evaluation": "evaluation", "save": "saving"}
_WORTH_TELLING = 0.01
_FAR = 0.03
"""a difference that is worth a mark"""


class Beside(NamedTuple):
    """What stands beside the measurements."""

    lines: Sequence[BesideLine]
    """instants with what was said of them before"""
    step: Bounds | None
    """estimated [s]; None: not said, or of another kind of device"""
    model_flops_utilization: float | None


def probe_text(settings: Settings, probe: Probe, beside: Beside, paper: Paper) -> str:
    """The whole report on one probe.

    Args:
        settings: of the worksheet as it was probed
        probe: what was seen
        beside: what was said of it before
        paper: how to print
    """
    found = [paper.ink(piece, "bold") for piece in paper.sentence(headline(settings), indent=0)]
    ink = "green" if probe.outcome == "completed" else "red"
    found += ["", *(paper.ink(piece, ink) for piece in paper.sentence(outcome_words(probe))), ""]
    found += paper.entry("Layout", layout_name(settings.layout))
    for note in probe.notes:
        found += paper.entry("Differs", note)
    for note in probe.environment.get("busy", ()):
        found += paper.entry("Busy", str(note))
    if beside.lines:
        ended_in = "" if probe.out_of_memory is None else probe.out_of_memory.phase
        found += ["", *_table(beside.lines, paper, ended_in), *_drawing(settings, probe, paper), ""]
    if (unseen := probe.environment.get("released_unseen_bytes", 0)) > _WORTH_TELLING * (probe.largest("allocated_peak_bytes") or 0):
        text = f"threads of gloo released up to {measured_size(unseen)} that counts as allocated here: by so much each instant may be lower"
        found += paper.entry("Unseen", text)
    for label, text in _entries(probe, beside):
        found += paper.entry(label, text)
    if isinstance(last := probe.environment.get("last_lines"), list):
        found += paper.note("It wrote", "\n".join(("", *map(str, last))))
    return paper.finish(found)


def outcome_words(probe: Probe) -> str:
    """What became of it, in a sentence."""
    where = "processors" if _device(probe) == "cpu" else _device(probe)
    ranks = f"{probe.world_size} rank{'s' if probe.world_size > 1 else ''} on {where}"
    if probe.outcome == "completed":
        return f"{_OUTCOMES[probe.outcome]}: {ranks}."
    return f"{_OUTCOMES[probe.outcome]} ({ranks}): {probe.reason.rstrip('.')}."


def known_words(probe: Probe) -> str:
    """What a probe that did not come to its end has measured, in a line."""
    peak, count = probe.largest("allocated_peak_bytes"), len(probe.step_seconds)
    memory = "no memory was counted yet" if peak is None else f"{measured_size(peak)} allocated at most"
    if not count:
        return f"{memory}, no step was timed yet"
    return f"{memory}, {count} {'step' if count == 1 else 'steps'} timed ({probe.median_step_seconds:.3f} s, the median)"


def _device(probe: Probe) -> str:
    return str(probe.environment.get("device", "cpu"))


def _table(lines: Sequence[BesideLine], paper: Paper, ended_in: str) -> list[str]:
    """A stretch in which memory ran out is not compared: it did not come to its peak."""
    peak = max(lines, key=lambda line: line.measured)
    unit = unit_of(peak.measured)
    head = f"  {f'allocated, {unit.name}':<34}{'measured':>12}{'traced':>22}{'estimated':>22}"
    rows = [paper.ink(head, "bold")]
    for line in lines:
        words = {**INSTANTS, **_MORE_INSTANTS}.get(line.what, line.what)
        is_cut = line.what == ended_in
        traced = _beside(line.traced, line.traced_difference, unit.size_bytes, is_cut)
        estimated = _beside(None if line.estimated is None else line.estimated.likely, line.difference, unit.size_bytes, is_cut)
        text = f"  {words:<34}{line.measured / unit.size_bytes:>12,.3f}{traced:>22}{estimated:>22}"
        rows.append(paper.ink(text, "bold") if line is peak else text)
    return rows


def _drawing(settings: Settings, probe: Probe, paper: Paper) -> list[str]:
    """The course of the last counted step on the worst rank."""
    worst = probe.worst
    assert worst is not None
    last = max(each.step for each in worst.memory)
    phases = set(get_args(Phase))
    timeline = [
        Moment(each.step, each.micro_batch, cast("Phase", each.phase), None, each.allocated_peak_bytes, each.allocated_end_bytes, 0)
        for each in worst.memory if each.step == last and each.phase in phases
    ]  # fmt: skip
    if not timeline:
        return []
    words = moment_words(peak_of(timeline), settings.batch.accumulation)
    head = paper.ink(f"  Allocated in the course of step {last}, peak at: {words}", "bold")
    return ["", head, *timeline_lines(timeline, paper)]


def _beside(said: float | None, off: float | None, unit: int, is_cut: bool) -> str:
    """What was said, and by how much that is off."""
    if said is None or off is None:
        return "-"
    if is_cut:
        return f"{said / unit:,.3f} (ran out)"
    return f"{said / unit:,.3f} ({round(off, 3) + 0.0:+.1%}{'!' if abs(off) > _FAR else ''})"


def _entries(probe: Probe, beside: Beside) -> list[tuple[str, str]]:
    found = []
    if (ran_out := probe.out_of_memory) is not None:
        found.append(("Ran out", _ran_out_words(probe)))
        if ran_out.enough_bytes is not None and _device(probe) != "cpu":  # there limits count more than tensors
            found.append(("Enough", f"at least {measured_size(ran_out.enough_bytes)} at that instant; later ones may ask for more"))
    for label, counter in (("Reserved", "reserved_peak_bytes"), ("Device", "device_used_bytes")):
        if (size := probe.largest(counter)) is not None:  # type: ignore[arg-type]
            found.append((label, f"{measured_size(size)} at most on any rank"))
    if probe.step_seconds:
        found.append(("Step", _step_words(probe, beside)))
    if (exposed := probe.exposed_communication_fraction) is not None:
        found.append(("Network", f"communication that is not hidden takes {exposed:.1%} of a step"))
    if failed := probe.environment.get("save_failed"):
        found.append(("Save", f"FAILED: {failed}"))
    if evaluations := [rank.evaluation_seconds for rank in probe.ranks if rank.evaluation_seconds is not None]:
        found.append(("Evaluation", f"one micro-batch in {max(evaluations):.2f} s"))
    for rank in probe.ranks[:1]:
        if rank.save_seconds is not None and rank.save_bytes is not None:
            found.append(("Save", f"{measured_size(rank.save_bytes)} in {rank.save_seconds:.2f} s, in {probe.environment.get('saved_to')}"))
    hosts = [rank.host_peak_bytes for rank in probe.ranks if rank.host_peak_bytes is not None]
    if hosts:
        found.append(("Host", f"{measured_size(max(hosts))} at most in one process"))
    versions = " · ".join(f"{name} {version}" for name, version in probe.environment.get("versions", {}).items())
    seed = "" if probe.seed is None else f" · seed {probe.seed}"
    return [*found, ("Evidence", f"measured · {versions}{seed}")]


def _step_words(probe: Probe, beside: Beside) -> str:
    seconds, median = probe.step_seconds, probe.median_step_seconds
    assert median is not None
    words = f"{median:.3f} s (median of {len(seconds)}; {min(seconds):.3f} to {max(seconds):.3f})"
    if (rate := probe.tokens_per_second) is not None:
        words += f" · {rate:,.0f} tokens/s in all"
    if (wait := probe.data_wait_fraction) is not None:
        words += f" · data {wait:.1%}"
    if beside.model_flops_utilization is not None:
        words += f" · MFU {beside.model_flops_utilization:.1%}"
    return words if beside.step is None else f"{words} · estimated {beside.step.low:.3f} to {beside.step.high:.3f} s"


def _ran_out_words(probe: Probe) -> str:
    ran_out = probe.out_of_memory
    assert ran_out is not None
    asked = "an unknown size" if ran_out.asked_bytes is None else measured_size(ran_out.asked_bytes)
    words = f"{ran_out.where}: {asked} was asked for"
    there = [("allocated", ran_out.allocated_bytes), ("reserved", ran_out.reserved_bytes), ("limit", ran_out.limit_bytes)]
    return words + "".join(f" · {measured_size(size)} {name}" for name, size in there if size is not None)
