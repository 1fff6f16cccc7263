"""What records did to an answer, and a record beside its own estimate; for the terminal and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fullstep import __version__
from fullstep.calibration.evidence import Records, Residual, Used
from fullstep.calibration.residuals import BesideLine
from fullstep.errors import Fault
from fullstep.ledger.probe import Probe
from fullstep.quantities import Bounds
from fullstep.report.evidence_words import figure_words, percent, what_ran
from fullstep.report.json import finite
from fullstep.report.paper import Paper

_GROUPS = {
    "peaks": "peak of the worst GPU in the steady step", "instants": "allocated at each instant",
    "mechanisms": "of which: there all the time, and on top of that", "time": "time",
}  # fmt: skip
_CELL, _LABEL = 13, 28
_MOST_REFUSED = 4
_VERBS = {"same": "replaces what was estimated", "near": "narrows the bounds", "link": "stands for what is assumed"}


def used_text(records: Records[Used], paper: Paper) -> str:
    """Each record that was used and how, then those that were not, and why."""
    lines: list[str] = []
    for record in records.used:
        verb = _VERBS[record.match.kind]
        lines += paper.entry("" if lines else "Records", f"{record.name} {verb}: {record.match.why}")
        if record.residuals:
            lines += paper.entry("", "it measured, beside its own estimate: " + ", ".join(map(_residual_words, record.residuals)))
        lines += [line for note in record.notes for line in paper.note("", f"its program: {note}")]
    if not records.used:
        lines += paper.entry("Records", "none of them is of this worksheet or near it")
    return paper.finish([*lines, *unused_lines(records.refused, records.faults, paper)])


def unused_lines(refused: Sequence[tuple[str, str]], faults: Sequence[Fault], paper: Paper) -> list[str]:
    """Records that were of no use, and why; files that could not be read.

    Args:
        refused: record and why
        faults: of files that are no records
        paper: how to print
    """
    lines: list[str] = []
    for number, (name, why) in enumerate(refused[:_MOST_REFUSED]):
        lines += paper.entry("" if number else "Not used", f"{name}: {why}")
    if (rest := len(refused) - _MOST_REFUSED) > 0:
        lines += paper.entry("", f"and {rest} more under --json")
    for fault in faults:
        lines += [paper.ink(line, "red") for line in paper.entry("Not read", str(fault))]
    return lines


def used_as_dict(records: Records[Used]) -> dict[str, Any]:
    """The same; sizes in bytes, times in seconds."""
    used = [
        {
            "file": record.name, "match": record.match.kind, "why": record.match.why, "notes": list(record.notes),
            "residuals": [{**each._asdict(), "estimated": each.estimated.as_dict()} for each in record.residuals],
        }
        for record in records.used
    ]  # fmt: skip
    return {"used": used, **unused_as_dict(records.refused, records.faults)}


def unused_as_dict(refused: Sequence[tuple[str, str]], faults: Sequence[Fault]) -> dict[str, Any]:
    """Records that were of no use, and why; files that could not be read."""
    return {"refused": [{"file": name, "why": why} for name, why in refused], "unreadable": [str(fault) for fault in faults]}


def beside_text(name: str, probe: Probe, lines: Sequence[BesideLine], paper: Paper) -> str:
    """A record beside what was said of its own worksheet, with what the estimate is off by."""
    traced = any(line.traced is not None for line in lines)
    heads = ["measured", "estimated", *(["traced"] if traced else []), "off by"]
    text = [*paper.entry("Record", f"{what_ran(probe)} · {name}"), "", paper.ink(_row("", heads), "bold")]
    for group, words in _GROUPS.items():
        rows = [line for line in lines if line.group == group]
        text += [f"  {words}"] if rows else []
        for line in rows:
            said = None if line.estimated is None else line.estimated.likely
            cells = [figure_words(line.measured, line.unit), figure_words(said, line.unit)]
            cells += [figure_words(line.traced, line.unit)] if traced else []
            row = _row(f"  {line.what.replace('_', ' ')}", [*cells, percent(line.difference)])
            text.append(row if line.is_inside else paper.ink(f"{row}  outside of {_span(line)}", "red"))
    for number, note in enumerate(probe.notes):
        text += paper.note("" if number else "Program", note)
    return paper.finish(text)


def beside_as_dict(name: str, probe: Probe, lines: Sequence[BesideLine]) -> dict[str, Any]:
    """The same; sizes in bytes, times in seconds."""
    rows = [
        {
            "group": line.group, "what": line.what, "unit": line.unit, "measured": line.measured, "traced": line.traced,
            "estimated": None if line.estimated is None else line.estimated.as_dict(), "is_inside": line.is_inside,
            "estimated_over_measured_less_one": line.difference,
        }
        for line in lines
    ]  # fmt: skip
    head = {"schema": 1, "fullstep": __version__, "evidence": "measured", "file": name, "model": probe.model}
    said: dict[str, Any] = finite({**head, "lines": rows, "notes": list(probe.notes)})
    return said


def _residual_words(residual: Residual) -> str:
    unit = "bytes" if residual.what in ("allocated", "reserved", "device") else "seconds"
    likely = residual.estimated.likely
    apart = f" (estimated {percent(likely / residual.measured - 1)})" if residual.measured > 0 else ""
    where = "" if residual.place is not None else f", outside of {_ends(residual.estimated, unit)}"
    return f"{residual.what} {figure_words(residual.measured, unit)}{apart}{where}"


def _span(line: BesideLine) -> str:
    return "" if line.estimated is None else _ends(line.estimated, line.unit)


def _ends(bounds: Bounds, unit: str) -> str:
    return f"{figure_words(bounds.low, unit)} to {figure_words(bounds.high, unit)}"


def _row(label: str, cells: Sequence[str]) -> str:
    return f"  {label:<{_LABEL}}" + "".join(f"{cell:>{_CELL}}" for cell in cells)
