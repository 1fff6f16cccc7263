"""What records did to the options of a plan, for the terminal and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from fullstep.report.evidence_used import unused_lines
from fullstep.report.paper import Paper

if TYPE_CHECKING:
    from fullstep.errors import Fault

_MOST_USED = 4


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


class PlanRecords(NamedTuple):
    """What became of each record."""

    used: Sequence[UsedOf]
    refused: Sequence[tuple[str, str]]
    """record and why: of the first option"""
    faults: Sequence[Fault]
    """of files that are no records"""


def plan_records_text(records: PlanRecords, paper: Paper) -> str:
    """Each record that was used, of how many options, then those that were not, and why."""
    lines: list[str] = []
    for record in records.used[:_MOST_USED]:
        lines += paper.entry("" if lines else "Records", f"{record.name} {_did(record)}: {record.why}")
    if (rest := len(records.used) - _MOST_USED) > 0:
        lines += paper.entry("", f"and {rest} more under --json")
    if not records.used:
        lines += paper.entry("Records", "none of them is of an option or near one")
    return paper.finish([*lines, *unused_lines(records.refused, records.faults, paper)])


def plan_records_as_dict(records: PlanRecords) -> dict[str, Any]:
    """The same, with numbers of options."""
    used = [
        {
            "file": each.name, "replaced": each.replaced, "narrowed": each.narrowed, "linked": each.linked, "options": each.options,
            "why": each.why,
        }
        for each in records.used
    ]  # fmt: skip
    refused = [{"file": name, "why": why} for name, why in records.refused]
    return {"used": used, "refused": refused, "unreadable": [str(fault) for fault in records.faults]}


def _did(record: UsedOf) -> str:
    """
    >>> _did(UsedOf("a.json", 1, 3, 0, 5, ""))
    'replaces what was estimated of 1 and narrows the bounds of 3 of 5 options'
    >>> _did(UsedOf("a.json", 0, 0, 0, 1, ""))
    'changes nothing of 1 option'
    """
    parts = (
        ("replaces what was estimated of", record.replaced), ("narrows the bounds of", record.narrowed),
        ("stands for the links of", record.linked),
    )  # fmt: skip
    said = " and ".join(f"{verb} {count}" for verb, count in parts if count)
    return f"{said or 'changes nothing'} of {record.options} option{'' if record.options == 1 else 's'}"
