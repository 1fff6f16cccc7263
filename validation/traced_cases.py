"""Traces of the published cases beside their estimates: a column of the accuracy page.

Tracing takes minutes and needs the extra ``lab``, so the traced peaks are kept in ``traced_cases.jsonl``:

    python validation/traced_cases.py [PATTERN ...]     trace anew those whose name contains one of the patterns; without one, every case

What cannot be traced is written with its reason.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from published_cases import COUNTERS, Case, Counter, published_cases
from traces_worker import answers

from fullstep.job import settings_of, worksheet_from_mapping
from fullstep.job.outside import outside_allocator

KEPT = Path(__file__).resolve().parent / "traced_cases.jsonl"


class TracedPeak(NamedTuple):
    """What a trace said of one case; bytes on one GPU. ``refused``: why it could not be traced, else empty."""

    case: str
    allocated_peak_bytes: int
    reserved_peak_bytes: int
    refused: str


class TracedScore(NamedTuple):
    """One published peak with both witnesses, in bytes."""

    case: Case
    counter: Counter
    measured_bytes: float
    estimated_bytes: float
    traced_bytes: float

    @property
    def traced_error_percent(self) -> float:
        """Above zero: the trace is too high."""
        return 100 * (self.traced_bytes / self.measured_bytes - 1)

    @property
    def estimated_error_percent(self) -> float:
        return 100 * (self.estimated_bytes / self.measured_bytes - 1)


def traced_peaks(path: Path = KEPT) -> dict[str, TracedPeak]:
    """What is kept, by the name of the case."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {peak.case: peak for peak in (TracedPeak(**json.loads(line)) for line in lines)}


def score_traces(
    estimated: Mapping[tuple[str, Counter], float], peaks: Mapping[str, TracedPeak], cases: Iterable[Case]
) -> list[TracedScore]:
    """Every published peak whose case was traced and estimated.

    Args:
        estimated: likely estimate in bytes by case and counter
        peaks: of :func:`traced_peaks`
        cases: the published runs
    """
    scores = []
    for case in cases:
        peak = peaks.get(case.name)
        if peak is None or peak.refused:
            continue
        traced = _counters(case, peak)
        for counter, measured in case.peak_bytes.items():
            if (case.name, counter) not in estimated:
                continue
            found = traced[counter] if counter in traced else min(traced.values(), key=lambda each: abs(each - measured))
            scores.append(TracedScore(case, counter, measured, estimated[case.name, counter], found))
    return scores


def _counters(case: Case, peak: TracedPeak) -> dict[str, float]:
    outside = outside_allocator(settings_of(worksheet_from_mapping(case.worksheet))).likely
    return {
        "allocated": peak.allocated_peak_bytes,
        "reserved": peak.reserved_peak_bytes,
        "device": peak.reserved_peak_bytes + outside,
    }


def traced_rows(scores: Sequence[TracedScore]) -> Iterator[tuple[str, ...]]:
    """Table rows: source, counter, peaks, mean errors of both, worst of the trace; the last rows over all sources by counter."""
    keys = sorted({(score.case.group, score.counter) for score in scores}, key=lambda key: (key[0], COUNTERS.index(key[1])))
    for group, counter in keys:
        yield _row(group, counter, [score for score in scores if (score.case.group, score.counter) == (group, counter)])
    for counter in COUNTERS:
        found = [score for score in scores if score.counter == counter]
        if found:
            yield _row("all", counter, found)


def _row(group: str, counter: str, scores: Sequence[TracedScore]) -> tuple[str, ...]:
    errors = [score.traced_error_percent for score in scores]
    estimated = mean(abs(score.estimated_error_percent) for score in scores)
    traced = mean(map(abs, errors))
    return group, counter, str(len(scores)), f"{estimated:.1f} %", f"{traced:.1f} %", f"{min(errors):+.1f} %", f"{max(errors):+.1f} %"


def retrace(cases: Sequence[Case]) -> Iterator[TracedPeak]:
    """Traces every case in a process of its own, from one that has the libraries loaded."""
    for case, answer in zip(cases, answers(case.worksheet for case in cases), strict=True):
        yield _peak(case.name, answer)


def _peak(name: str, answer: Mapping[str, Any]) -> TracedPeak:
    if "trace" in answer:
        return TracedPeak(name, answer["trace"]["allocated_peak_bytes"], answer["trace"]["reserved_peak_bytes"], "")
    faults = answer.get("unsupported") or answer.get("faults")
    why = "; ".join(f"{fault['where'].rpartition(': ')[2]}: {fault['found']}" for fault in faults) if faults else str(answer.get("crash"))
    return TracedPeak(name, 0, 0, why)


def _minutes(case: Case) -> bool:
    """Adapters under FSDP1 are traced block by block and come last."""
    adapter: bool = case.worksheet.get("method", {}).get("kind", "full") != "full"
    return adapter and bool(case.worksheet.get("layout", {}).get("implementation") == "fsdp1")


def main(patterns: Sequence[str]) -> int:
    """Retrace and write. What is kept of other cases stays."""
    cases = sorted((case for case in published_cases() if not patterns or any(part in case.name for part in patterns)), key=_minutes)
    kept = traced_peaks() if patterns else {}
    for number, peak in enumerate(retrace(cases), 1):
        kept[peak.case] = peak
        KEPT.write_text("".join(json.dumps(each._asdict()) + "\n" for each in kept.values()), encoding="utf-8")
        size = f"{peak.allocated_peak_bytes / 2**30:.2f} GiB" if not peak.refused else peak.refused[:100]
        print(f"{number}/{len(cases)} {peak.case}: {size}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
