"""The published measurements in ``cases/``: one JSON object a line, one file per source. README.md explains the fields."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

CASES = Path(__file__).resolve().parent / "cases"

Counter = Literal["allocated", "reserved", "device", "unspecified"]
COUNTERS: tuple[Counter, ...] = ("allocated", "reserved", "device", "unspecified")

FIELDS = frozenset(("id", "group", "tier", "source", "date", "software", "worksheet", "measured", "not_stated", "note"))
TIERS = ("A", "B")


class Case(NamedTuple):
    """One published run. Memory in bytes on the worst GPU; None where the source does not say."""

    name: str
    """the ``id``; no two cases share one"""
    group: str
    tier: str
    source: str
    worksheet: dict[str, Any]
    ran: bool
    """False: it ran out of memory"""
    peak_bytes: dict[Counter, float]
    """published peaks by counter; empty for runs that ran out"""
    note: str


def published_cases(folder: Path = CASES) -> tuple[Case, ...]:
    """All cases, file by file in the order of their names.

    Raises:
        ValueError: a line is no case, or an id is used twice; the message says where and what to do
    """
    cases: list[Case] = []
    seen: dict[str, str] = {}
    for where, line in _lines(folder):
        case = _case(where, line)
        if case.name in seen:
            raise ValueError(f"{where}: id {case.name!r} is used in {seen[case.name]} already; give every case an id of its own")
        seen[case.name] = where
        cases.append(case)
    return tuple(cases)


def _lines(folder: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(folder.glob("*.jsonl")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if line.strip():
                yield f"{path.name}:{number}", line


def _case(where: str, line: str) -> Case:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"{where}: no JSON ({error}); write one object a line") from None
    if not isinstance(row, dict) or set(row) != FIELDS:
        found = sorted(row) if isinstance(row, dict) else type(row).__name__
        raise ValueError(f"{where}: fields {found}; allowed: exactly {sorted(FIELDS)}, null where the source does not say")
    if row["tier"] not in TIERS:
        raise ValueError(f"{where}: tier {row['tier']!r}; allowed: {', '.join(TIERS)}")
    measured = row["measured"]
    if not isinstance(measured.get("fits"), bool):
        allowed = "true for a run that ran, false for one that ran out of memory"
        raise ValueError(f"{where}: measured.fits {measured.get('fits')!r}; allowed: {allowed}")
    peaks: dict[Counter, float] = {}
    if measured["fits"]:
        peaks = {counter: size for counter in COUNTERS if (size := measured.get(f"{counter}_peak_bytes"))}
    return Case(row["id"], row["group"], row["tier"], row["source"], row["worksheet"], measured["fits"], peaks, row["note"] or "")
