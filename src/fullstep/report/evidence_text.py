"""Records of probes for the terminal: a list, two side by side, and whether files are records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fullstep.calibration.records import ComparedFigure, ComparedProbes, figures_of
from fullstep.errors import Fault
from fullstep.ledger.probe import Probe
from fullstep.quantities import GIB, MIB
from fullstep.report.paper import Paper, cut

_OUTCOMES = {
    "completed": ("completed", "green"), "out_of_memory": ("out of memory", "red"), "rank_died": ("a rank died", "red"),
    "hung": ("hung", "red"), "stopped": ("stopped", "yellow"),
}  # fmt: skip
_GROUPS = {"peaks": "peak of the worst GPU", "instants": "allocated at each instant", "time": "time", "rest": "beside the steps"}
_HEADS = ("allocated", "reserved", "device", "step")
_CELL = 12
_LABEL = 40
_MOST_DIFFERING = 12
NONE = "–"


def list_text(where: str, records: Sequence[tuple[str, Probe]], bad: Sequence[tuple[str, Sequence[Fault]]], paper: Paper) -> str:
    """Two lines for each record: what ran on what, and its figures; then what could not be read.

    Args:
        where: the folder
        records: file and probe
        bad: file and what is wrong with it
        paper: how to print
    """
    count = f"{len(records):,} record{'' if len(records) == 1 else 's'} in {where}"
    lines = [*paper.sentence(count, indent=0), ""]
    if records:
        heads = "".join(f"{head:>{_CELL}}" for head in _HEADS)
        lines.append(paper.ink(f"  {'record':<{paper.width - 2 - _CELL * len(_HEADS)}}{heads}", "bold"))
    for name, probe in records:
        lines += _record_lines(name, probe, paper)
    for name, faults in bad:
        lines += [paper.ink(line, "red") for fault in faults for line in paper.sentence(f"not read: {_fault_words(name, fault)}")]
    return paper.finish(lines)


def compared_text(names: tuple[str, str], probes: tuple[Probe, Probe], found: ComparedProbes, paper: Paper) -> str:
    """Figure by figure, the difference in percent of the first one; then what else is different."""
    lines = []
    for letter, name, probe in zip("AB", names, probes, strict=True):
        lines += paper.entry(letter, f"{what_ran(probe)} · {_OUTCOMES[probe.outcome][0]} · {name}")
    lines += ["", paper.ink(_row("", "A", "B", "B over A"), "bold")]
    for group, words in _GROUPS.items():
        rows = [figure for figure in found.figures if figure.group == group]
        if rows:
            lines += [f"  {words}", *(_figure_row(row) for row in rows)]
    lines += ["", *_differing_lines(found, paper)]
    return paper.finish(lines)


def validated_text(checked: Sequence[tuple[str, Probe | None, Sequence[Fault]]], paper: Paper) -> str:
    """A line for each file, and what is wrong with it."""
    lines = []
    for name, probe, faults in checked:
        if probe is not None:
            lines.append(f"  {paper.ink('ok', 'green')}   {cut(f'{name} · {what_ran(probe)}', paper.width - 7)}")
        for fault in faults:
            first, *more = paper.wrapped(_fault_words(name, fault), paper.width - 7)
            lines += [f"  {paper.ink('BAD', 'red')}  {first}", *(" " * 7 + piece for piece in more)]
    bad = sum(1 for _, probe, _ in checked if probe is None)
    verdict = f"{len(checked) - bad:,} of {len(checked):,} are sound records"
    return paper.finish([*lines, "", paper.ink(verdict, "bold", "red" if bad or not checked else "green")])


def what_ran(probe: Probe) -> str:
    """Model, ranks and devices in a few words."""
    devices = ", ".join(dict.fromkeys(rank.device for rank in probe.ranks))
    if not devices:
        return f"{probe.model} · {probe.world_size} ranks, none left a record"
    return f"{probe.model} · {'' if probe.world_size == 1 else f'{probe.world_size} x '}{devices}"


def figure_words(value: float | None, unit: str) -> str:
    """A figure with its unit.

    >>> figure_words(3 * 2**30, "bytes"), figure_words(0.0123456, "seconds"), figure_words(None, "bytes"), figure_words(0.125, "fraction")
    ('3.00 GiB', '0.0123 s', '–', '12.5 %')
    """
    if value is None:
        return NONE
    if unit == "bytes":
        return _size(value)
    if unit == "fraction":
        return f"{100 * value:.1f} %"
    number = f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
    return f"{number} s" if unit == "seconds" else number


def percent(share: float | None) -> str:
    """A difference, signed.

    >>> percent(0.0123), percent(-0.5), percent(None), percent(0.0)
    ('+1.2 %', '-50.0 %', '', '0')
    """
    if share is None:
        return ""
    return "0" if share == 0 else f"{100 * share:+,.1f} %"


def _size(size_bytes: float) -> str:
    if size_bytes >= GIB:
        return f"{size_bytes / GIB:,.2f} GiB"
    return f"{size_bytes / MIB:,.2f} MiB" if size_bytes >= MIB else f"{size_bytes / 1024:,.1f} KiB"


def _record_lines(name: str, probe: Probe, paper: Paper) -> list[str]:
    figures = {(each.group, each.what): each for each in figures_of(probe)}
    wanted = (("peaks", "allocated"), ("peaks", "reserved"), ("peaks", "device"), ("time", "step, median"))
    cells = [figure_words(figures[key].value, figures[key].unit) if key in figures else NONE for key in wanted]
    room = paper.width - 2 - _CELL * len(_HEADS)
    words, ink = _OUTCOMES[probe.outcome]
    made = probe.made[:16].replace("T", " ")
    first = f"  {cut(what_ran(probe), room - 1):<{room}}" + "".join(f"{cell:>{_CELL}}" for cell in cells)
    tail = cut(f"{made} · {name}", paper.width - 7 - len(words))
    return [first, f"    {paper.ink(words, ink)} · {paper.ink(tail, 'dim')}"]


def _figure_row(row: ComparedFigure) -> str:
    return _row(f"  {row.what}", figure_words(row.first, row.unit), figure_words(row.second, row.unit), percent(row.difference))


def _row(label: str, first: str, second: str, difference: str) -> str:
    return f"  {label:<{_LABEL}}{first:>{_CELL}}{second:>{_CELL}}{difference:>{_CELL}}"


def _differing_lines(found: ComparedProbes, paper: Paper) -> list[str]:
    if not found.differing:
        return paper.entry("Different", "nothing: the same worksheet in the same environment")
    lines: list[str] = []
    for number, (key, first, second) in enumerate(found.differing[:_MOST_DIFFERING]):
        lines += paper.entry("Different" if number == 0 else "", f"{key}: {_plain(first)}, {_plain(second)}")
    rest = len(found.differing) - _MOST_DIFFERING
    return lines + (paper.entry("", f"and {rest} more under --json") if rest > 0 else [])


def _plain(value: Any) -> str:
    return NONE if value is None or value == "" else cut(str(value), 60)


def _fault_words(name: str, fault: Fault) -> str:
    """A fault begins with the file's name already."""
    return str(fault) if str(fault).startswith(name) else f"{name}: {fault}"
