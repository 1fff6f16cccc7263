"""Every instant of the step with what is alive in it; where it was traced, estimated and traced line by line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fullstep.ledger import HOLDINGS, Answer, Holdings, Instant
from fullstep.report.paper import Paper
from fullstep.report.wording import IN_GIB, Unit, unit_of

_SHORT_HOLDINGS = ("weights", "grads", "states", "activ.", "logits", "gathered", "temp.", "buffers")
_CELL = 9
_LABEL = 15
_WEIGHTS = HOLDINGS.index("weights")


class _Columns(NamedTuple):
    """Which holdings have a column of their own; the smallest share one where the paper is narrow, but never the weights."""

    kept: tuple[int, ...]
    merged: tuple[int, ...]
    unit: Unit

    @classmethod
    def of(cls, accounts: Iterable[Holdings], unit: Unit, paper: Paper) -> _Columns:
        most = [max(sizes) for sizes in zip(*accounts, strict=True)]
        used = [index for index in range(len(HOLDINGS)) if unit.shows(most[index])]
        room = (paper.width - 2 - _LABEL - _CELL) // _CELL
        kept = sorted(used, key=lambda index: (index != _WEIGHTS, -most[index]))[: room if len(used) <= room else room - 1]
        return cls(tuple(sorted(kept)), tuple(index for index in used if index not in kept), unit)

    def head(self, label: str) -> str:
        names = [_SHORT_HOLDINGS[index] for index in self.kept] + (["other"] if self.merged else [])
        return _row(label, ["allocated", *names])

    def numbers(self, holdings: Holdings) -> list[str]:
        """The same as they are printed."""
        return [self.unit.number(size) for size in self.sizes(holdings)]

    def sizes(self, holdings: Holdings) -> list[float]:
        """All of them, each kept one, and the others together."""
        merged = [sum(holdings[index] for index in self.merged)] if self.merged else []
        return [sum(holdings), *(holdings[index] for index in self.kept), *merged]


def instants_lines(answer: Answer, paper: Paper) -> list[str]:
    """The instants of an answer: of both witnesses where it was traced and the formulas know the model."""
    return instants_table(answer, paper) if answer.estimated is None else witnesses_table(answer, answer.estimated.instants, paper)


def instants_table(answer: Answer, paper: Paper) -> list[str]:
    """Every instant of the step with what is alive in it."""
    memory = answer.memory
    columns = _Columns.of((instant.holdings for instant in memory.instants), unit_of(memory.allocated_peak_bytes.likely), paper)
    witness = "estimated" if answer.trace is None else "traced"
    lines = [columns.head(columns.unit.name if memory.evidence == "estimated" else f"{columns.unit.name}, {witness}")]
    for instant in memory.instants:
        row = _row(instant.at.replace("_", " "), columns.numbers(instant.holdings))
        lines.append(paper.ink(row, "bold") if instant.at == memory.peak_at else row)
    return lines


def witnesses_table(answer: Answer, estimated: Sequence[Instant], paper: Paper) -> list[str]:
    """Every instant three times: as estimated, as traced, and by how much the trace differs, in percent of the estimate."""
    theirs = {instant.at: instant.holdings for instant in estimated}
    seen = {instant.at: instant.holdings for instant in answer.memory.instants}
    columns = _Columns.of([*theirs.values(), *seen.values()], unit_of(answer.memory.allocated_peak_bytes.likely), paper)
    lines = [columns.head(columns.unit.name)]
    for at in dict.fromkeys([*theirs, *seen]):
        name = f"  {at.replace('_', ' ')}"
        lines.append(paper.ink(f"{name} (peak)", "bold") if at == answer.memory.peak_at else name)
        sizes = [columns.sizes(account[at]) if at in account else [] for account in (theirs, seen)]
        for label, found in zip(("estimated", "traced"), sizes, strict=True):
            lines.append(_row(f"  {label}", [columns.unit.number(size) for size in found] or ["-"]))
        if all(sizes):
            lines.append(_row("  difference", [difference(one, other, columns.unit) for one, other in zip(*sizes, strict=True)]))
    return lines


def difference(estimated: float, traced: float, unit: Unit = IN_GIB) -> str:
    """By how much a trace differs from an estimate, in percent of it; nothing where neither shows.

    >>> difference(4 * 2**30, 5 * 2**30), difference(0, 2**30), difference(0, 0)
    ('+25.0 %', 'new', '')
    """
    if not (unit.shows(estimated) or unit.shows(traced)):
        return ""
    if not unit.shows(estimated):
        return "new"
    percent = 100 * (traced - estimated) / estimated
    return f"{percent:+,.0f} %" if abs(percent) >= 100 else f"{round(percent, 1) + 0.0:+.1f} %"


def _row(label: str, cells: Sequence[str]) -> str:
    return f"  {label:<{_LABEL}}" + "".join(f"{cell:>{_CELL}}" for cell in cells)
