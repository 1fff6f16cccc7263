"""Formulas beside traces of the real classes over a grid of worksheets.

python validation/traces.py                        traces.md, from the stored traces (seconds)
python validation/traces.py --check                exit code 1 and the names of files that differ
python validation/traces.py --retrace [PATTERN]    trace what matches again (all: half an hour on two cores), then as above
"""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from traces_grid import GridCase, Table, grid

from fullstep.job import complete, worksheet_from_mapping
from fullstep.ledger import HOLDINGS, Holdings
from fullstep.ledger.instants import At
from fullstep.physics import estimate_memory

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tools"))
from generated_pages import write_or_check  # noqa: E402 (its folder was put on the path just now)

STORED = ROOT / "validation" / "traces.jsonl"
DISAGREEMENTS = ROOT / "validation" / "trace_disagreements.toml"
PAGE = ROOT / "validation" / "traces.md"
LISTED_PERCENT = 3.0
"""a difference above it needs a cause"""
INSTANTS: tuple[At, ...] = ("forward", "loss", "backward", "second_forward", "optimizer_step")


class StoredTrace(NamedTuple):
    """What is kept of the trace of one worksheet. Bytes on one GPU."""

    case: GridCase
    allocated_peak_bytes: int
    reserved_peak_bytes: int
    peak_at: At
    instants: Mapping[At, Holdings]
    versions: Mapping[str, str]


class Pair(NamedTuple):
    """One figure of formulas and trace, in bytes."""

    estimated: float
    traced: float

    @property
    def percent(self) -> float:
        """(estimated - traced) / traced in percent.

        >>> Pair(103, 100).percent
        3.0
        """
        return 100 * (self.estimated - self.traced) / self.traced


class Comparison(NamedTuple):
    """One worksheet: formulas and trace."""

    name: str
    peak: Pair
    reserved: Pair
    instants: Mapping[At, Pair]
    estimated_peak_at: At
    traced_peak_at: At
    holdings: Mapping[At, Mapping[str, Pair]]
    """by instant; a trace and the formulas may have them at different moments of it"""

    @property
    def listed(self) -> dict[str, float]:
        """Differences in percent that need a cause: of the peak, and of each instant, as shares of the traced figure."""
        every = {"peak": self.peak.percent} | {at: pair.percent for at, pair in self.instants.items()}
        return {what: percent for what, percent in every.items() if abs(percent) > LISTED_PERCENT}


class Disagreement(NamedTuple):
    """A cause, by hand."""

    title: str
    worksheets: tuple[str, ...]
    """patterns of names"""
    at: tuple[str, ...]
    """``peak`` or instants"""
    cause: str

    def covers(self, name: str, at: str) -> bool:
        return at in self.at and any(fnmatchcase(name, pattern) for pattern in self.worksheets)


def disagreements(path: Path = DISAGREEMENTS) -> tuple[Disagreement, ...]:
    """All causes in the order of the file.

    Raises:
        KeyError: one has no title, worksheets, at or cause
    """
    rows = tomllib.loads(path.read_text(encoding="utf-8")).get("disagreement", [])
    return tuple(Disagreement(row["title"], tuple(row["worksheets"]), tuple(row["at"]), " ".join(row["cause"].split())) for row in rows)


def stored_traces(path: Path = STORED) -> tuple[StoredTrace, ...]:
    """The traces that were made last."""
    return tuple(_stored(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines())


def _stored(row: Table) -> StoredTrace:
    instants = {at: Holdings(**holdings) for at, holdings in row["instants"].items()}
    case = GridCase(row["id"], row["worksheet"])
    return StoredTrace(case, row["allocated_peak_bytes"], row["reserved_peak_bytes"], row["peak_at"], instants, row["versions"])


def compare(trace: StoredTrace) -> Comparison:
    """The formulas' account of the same worksheet beside the trace."""
    estimate = estimate_memory(complete(worksheet_from_mapping(trace.case.worksheet, trace.case.name)))
    estimated = {instant.at: instant.holdings for instant in estimate.instants}
    together = [at for at in INSTANTS if at in estimated and at in trace.instants]
    return Comparison(
        name=trace.case.name,
        peak=Pair(max(held.allocated_bytes for held in estimated.values()), trace.allocated_peak_bytes),
        reserved=Pair(estimate.reserved.likely, trace.reserved_peak_bytes),
        instants={at: Pair(estimated[at].allocated_bytes, trace.instants[at].allocated_bytes) for at in together},
        estimated_peak_at=estimate.peak_at,
        traced_peak_at=trace.peak_at,
        holdings={
            at: {name: Pair(getattr(estimated[at], name), getattr(trace.instants[at], name)) for name in HOLDINGS} for at in together
        },
    )  # fmt: skip


def retrace(cases: Sequence[GridCase], say: Any = print) -> Iterator[tuple[GridCase, Table]]:
    """Traces these worksheets one after another in a warm process.

    Raises:
        RuntimeError: one cannot be traced; the message says which and why
    """
    from traces_worker import answers  # noqa: PLC0415 (needs the extra lab)

    for case, answer in zip(cases, answers([case.worksheet for case in cases]), strict=True):
        if "trace" not in answer:
            raise RuntimeError(f"{case.name}: {json.dumps(answer)[:500]}")
        seen = answer["trace"]
        say(f"{case.name}: {seen['allocated_peak_bytes'] / 2**30:.2f} GiB in {seen['seconds']} s")
        yield case, _kept(case, seen)


def _kept(case: GridCase, seen: Table) -> Table:
    return {
        "id": case.name, "worksheet": case.worksheet, "allocated_peak_bytes": seen["allocated_peak_bytes"],
        "reserved_peak_bytes": seen["reserved_peak_bytes"], "peak_at": seen["peak_at"],
        "instants": {instant["at"]: instant["holdings"] for instant in seen["instants"]}, "versions": dict(seen["versions"]),
    }  # fmt: skip


def _write_again(pattern: str) -> None:
    rows = {trace["id"]: trace for trace in map(json.loads, STORED.read_text(encoding="utf-8").splitlines())} if STORED.exists() else {}
    every = tuple(grid())
    for case, row in retrace([case for case in every if fnmatchcase(case.name, pattern)]):
        rows[case.name] = row
        STORED.write_text("".join(json.dumps(rows[case.name]) + "\n" for case in every if case.name in rows), encoding="utf-8")


def documents() -> dict[Path, str]:
    """The page that follows from the stored traces."""
    from traces_page import page  # noqa: PLC0415 (it needs this module)

    return {PAGE: page([compare(trace) for trace in stored_traces()], disagreements(), stored_traces()[0].versions)}


def main(arguments: Sequence[str]) -> int:
    """Trace again where asked; write or check; returns the exit code."""
    if "--retrace" in arguments:
        _write_again(next((argument for argument in arguments if not argument.startswith("--")), "*"))
    return write_or_check(documents(), check="--check" in arguments, remedy="python validation/traces.py")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
