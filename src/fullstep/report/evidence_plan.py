"""What records did to the options of a plan, for the terminal and as JSON."""

from __future__ import annotations

from typing import Any

from fullstep.calibration.evidence import Records, UsedOf
from fullstep.report.evidence_used import unused_as_dict, unused_lines
from fullstep.report.paper import Paper

_MOST_USED = 4


def plan_records_text(records: Records[UsedOf], paper: Paper) -> str:
    """Each record that was used, of how many options, then those that were not, and why."""
    lines: list[str] = []
    for record in records.used[:_MOST_USED]:
        lines += paper.entry("" if lines else "Records", f"{record.name} {_did(record)}: {record.why}")
    if (rest := len(records.used) - _MOST_USED) > 0:
        lines += paper.entry("", f"and {rest} more under --json")
    if not records.used:
        lines += paper.entry("Records", "none of them is of an option or near one")
    return paper.finish([*lines, *unused_lines(records.refused, records.faults, paper)])


def plan_records_as_dict(records: Records[UsedOf]) -> dict[str, Any]:
    """The same, with numbers of options."""
    used = [
        {
            "file": each.name, "replaced": each.replaced, "narrowed": each.narrowed, "linked": each.linked, "options": each.options,
            "why": each.why,
        }
        for each in records.used
    ]  # fmt: skip
    return {"used": used, **unused_as_dict(records.refused, records.faults)}


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
