"""Records of probes and links for the terminal: a list, two side by side, and whether files are records."""

from __future__ import annotations

from collections.abc import Sequence

from fullstep.calibration.records import ComparedFigure, ComparedRecords, figures_of, program_words
from fullstep.errors import Fault
from fullstep.ledger.link import MeasuredLink
from fullstep.ledger.probe import Probe
from fullstep.report.evidence_words import NONE, difference_words, figure_words, key_words, link_words, percent, value_words, what_ran
from fullstep.report.paper import Paper, cut

Record = Probe | MeasuredLink
"""what a file of evidence holds"""

_OUTCOMES = {
    "completed": ("completed", "green"), "out_of_memory": ("out of memory", "red"), "rank_died": ("a rank died", "red"),
    "hung": ("hung", "red"), "stopped": ("stopped", "yellow"),
}  # fmt: skip
_GROUPS = {"peaks": "peak of the worst GPU", "instants": "allocated at each instant", "time": "time", "rest": "beside the steps"}
_HEADS = ("allocated", "reserved", "device", "step")
_CELL = 12
_LABEL = 40
_MOST_DIFFERING = 12


def list_text(where: str, records: Sequence[tuple[str, Record]], bad: Sequence[tuple[str, Sequence[Fault]]], paper: Paper) -> str:
    """Two lines for each record: what ran on what, and its figures; then what could not be read.

    Args:
        where: the folder
        records: file, and the probe or the links that it measured
        bad: file and what is wrong with it
        paper: how to print
    """
    count = f"{len(records):,} record{'' if len(records) == 1 else 's'} in {where}"
    lines = [*paper.sentence(count, indent=0), ""]
    if any(isinstance(record, Probe) for _, record in records):
        heads = "".join(f"{head:>{_CELL}}" for head in _HEADS)
        lines.append(paper.ink(f"  {'record':<{paper.width - 2 - _CELL * len(_HEADS)}}{heads}", "bold"))
    for name, record in records:
        lines += _record_lines(name, record, paper) if isinstance(record, Probe) else _link_lines(name, record, paper)
    for name, faults in bad:
        lines += [paper.ink(line, "red") for fault in faults for line in paper.sentence(f"not read: {_fault_words(name, fault)}")]
    return paper.finish(lines)


def compared_text(names: tuple[str, str], records: tuple[Record, Record], found: ComparedRecords, paper: Paper) -> str:
    """Figure by figure, the difference in percent of the first one; then what else is different."""
    lines = []
    for letter, name, record in zip("AB", names, records, strict=True):
        ended = f" · {_OUTCOMES[record.outcome][0]}" if isinstance(record, Probe) else ""
        lines += paper.entry(letter, f"{what_ran(record)}{ended} · {name}")
    lines += ["", paper.ink(_row("", "A", "B", "B over A"), "bold")]
    for group in dict.fromkeys(figure.group for figure in found.figures):
        rows, words = [figure for figure in found.figures if figure.group == group], _GROUPS.get(group, group)
        if rows:
            lines += [f"  {words}", *(_figure_row(row) for row in rows)]
    lines += ["", *_differing_lines(found, paper)]
    return paper.finish(lines)


def validated_text(checked: Sequence[tuple[str, Record | None, Sequence[Fault]]], paper: Paper) -> str:
    """A line for each file, and what is wrong with it."""
    lines = []
    for name, record, faults in checked:
        if record is not None:
            lines.append(f"  {paper.ink('ok', 'green')}   {cut(f'{name} · {what_ran(record)}', paper.width - 7)}")
        for fault in faults:
            first, *more = paper.wrapped(_fault_words(name, fault), paper.width - 7)
            lines += [f"  {paper.ink('BAD', 'red')}  {first}", *(" " * 7 + piece for piece in more)]
    bad = sum(1 for _, record, _ in checked if record is None)
    verdict = f"{len(checked) - bad:,} of {len(checked):,} are sound records"
    return paper.finish([*lines, "", paper.ink(verdict, "bold", "red" if bad or not checked else "green")])


def _record_lines(name: str, probe: Probe, paper: Paper) -> list[str]:
    figures = {(each.group, each.what): each for each in figures_of(probe)}
    wanted = (("peaks", "allocated"), ("peaks", "reserved"), ("peaks", "device"), ("time", "step, median"))
    cells = [figure_words(figures[key].value, figures[key].unit) if key in figures else NONE for key in wanted]
    room = paper.width - 2 - _CELL * len(_HEADS)
    words, ink = _OUTCOMES[probe.outcome]
    made = probe.made[:16].replace("T", " ")
    first = f"  {cut(what_ran(probe), room - 1):<{room}}" + "".join(f"{cell:>{_CELL}}" for cell in cells)
    tail = cut(f"{made} · {name}", paper.width - 7 - len(words))
    lines = [first, f"    {paper.ink(words, ink)} · {paper.ink(tail, 'dim')}"]
    program = program_words(probe)
    return [*lines, f"    {paper.ink(cut(program, paper.width - 4), 'dim')}"] if program else lines


def _link_lines(name: str, link: MeasuredLink, paper: Paper) -> list[str]:
    made = link.made[:16].replace("T", " ")
    lines = [f"  {cut(what_ran(link), paper.width - 2)}", f"    {paper.ink(cut(f'{made} · {name}', paper.width - 4), 'dim')}"]
    return [*lines, *paper.sentence(link_words(link), indent=4)]


def _figure_row(row: ComparedFigure) -> str:
    return _row(f"  {row.what}", figure_words(row.first, row.unit), figure_words(row.second, row.unit), _apart(row))


def _apart(row: ComparedFigure) -> str:
    if row.group not in _GROUPS and row.first and row.second is not None:  # of links: medians of many
        return percent(row.second / row.first - 1)
    return difference_words(row.first, row.second, row.unit)


def _row(label: str, first: str, second: str, difference: str) -> str:
    return f"  {label:<{_LABEL}}{first:>{_CELL}}{second:>{_CELL}}{difference:>{_CELL}}"


def _differing_lines(found: ComparedRecords, paper: Paper) -> list[str]:
    if not found.differing:
        return paper.entry("Different", "nothing: the same was run in the same environment")
    lines: list[str] = []
    for number, (key, first, second) in enumerate(found.differing[:_MOST_DIFFERING]):
        one, other = (cut(value_words(key, value), 60) for value in (first, second))
        lines += paper.entry("Different" if number == 0 else "", f"{key_words(key)}: {one} in A, {other} in B")
    rest = len(found.differing) - _MOST_DIFFERING
    return lines + (paper.entry("", f"and {rest} more under --json") if rest > 0 else [])


def _fault_words(name: str, fault: Fault) -> str:
    """A fault begins with the file's name already."""
    return str(fault) if str(fault).startswith(name) else f"{name}: {fault}"
