"""Published step times against estimates: ``python validation/throughput.py [--compute-only] [--rows]`` writes ``throughput.md``.

Rows are ``throughput_cases.jsonl`` (clusters, converted from published tables) and the timed cases of ``cases/``. Every published row is
there or in ``throughput_exclusions.toml`` with its reason. Scored is the likely step time: ``likely / measured - 1``.

``--compute-only``: what one GPU computes, without communication and pipeline bubbles, over rows of one node that cut nothing but the batch
and the state. It is what is scored while no whole step can be computed; then it must come out below the measurement.
"""

from __future__ import annotations

import json
import statistics
import sys
import tomllib
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Literal, NamedTuple, TypedDict

from fullstep.errors import InputError
from fullstep.job import Job, complete, worksheet_from_mapping
from fullstep.physics.timing.compute import compute_seconds
from fullstep.quantities import Bounds

HERE = Path(__file__).resolve().parent
CASES = HERE / "throughput_cases.jsonl"
EXCLUSIONS = HERE / "throughput_exclusions.toml"
NOTES = HERE / "throughput_notes.toml"
PAGE = HERE / "throughput.md"
TARGET_MEAN_PERCENT, TARGET_FACTOR = 15, 1.5

Predictor = Callable[[Job], Bounds | None]
"""seconds of one optimizer step; None where it cannot say"""


class Case(NamedTuple):
    """One published step time."""

    name: str
    group: str
    job: Job | None
    seconds: float
    scored: bool
    """the hardware is known and the worksheet says all that decides the time"""
    refused: str
    """why the worksheet is refused"""


class Remark(TypedDict):
    """Rows and what is to be said of them."""

    reason: str
    ids: list[str]


class Score(NamedTuple):
    """One case beside its estimate."""

    case: Case
    estimate: Bounds

    @property
    def error_percent(self) -> float:
        return 100 * (self.estimate.likely / self.case.seconds - 1)

    @property
    def factor(self) -> float:
        """How far off, upwards or downwards."""
        return max(self.estimate.likely / self.case.seconds, self.case.seconds / self.estimate.likely)

    @property
    def inside(self) -> bool:
        return self.estimate.low <= self.case.seconds <= self.estimate.high


def cases() -> list[Case]:
    """All timed rows. A row that is in both files counts once, as the clusters' file has it."""
    found = [_cluster_case(json.loads(line)) for line in CASES.read_text(encoding="utf-8").splitlines()]
    for path in sorted((HERE / "cases").glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            measured = row["measured"]
            if measured.get("seconds_per_optimizer_step") or measured.get("tokens_per_second_per_gpu"):
                found.append(_memory_case(row))
    unsaid = remarks("unsaid")
    return [
        case._replace(scored=False, group=f"{case.group} (see below)") if case.name in unsaid else case
        for case in list({case.name: case for case in reversed(found)}.values())[::-1]
    ]


def _job(mapping: dict[str, object]) -> tuple[Job | None, str]:
    try:
        return complete(worksheet_from_mapping(mapping, "worksheet")), ""
    except InputError as error:
        return None, str(error).splitlines()[0]


def _cluster_case(row: dict[str, object]) -> Case:
    worksheet = row["worksheet"]
    assert isinstance(worksheet, dict)
    job, refused = _job(worksheet)
    unsaid = row["not_said_by_worksheet"]
    assert isinstance(unsaid, list)
    scored = bool(row["hardware_known"]) and not unsaid
    group = str(row["group"]) + (f" ({unsaid[0].split(':')[0]})" if unsaid and "virtual" not in unsaid[0] else "")
    if unsaid and "virtual" in unsaid[0]:
        group += " (interleaved)"
    return Case(str(row["id"]), group, job, float(str(row["seconds_per_optimizer_step"])), scored, refused)


def _memory_case(row: dict[str, object]) -> Case:
    worksheet, measured = row["worksheet"], row["measured"]
    assert isinstance(worksheet, dict)
    assert isinstance(measured, dict)
    job, refused = _job(worksheet)
    seconds = measured.get("seconds_per_optimizer_step")
    if not seconds and job is not None:
        gpus = job.layout.tensor * job.layout.pipeline * job.layout.context
        seconds = job.batch.tokens * job.batch.accumulation / gpus / measured["tokens_per_second_per_gpu"]
    return Case(str(row["id"]), str(row["group"]), job, float(seconds or 0.0), True, refused)


def score(predict: Predictor, rows: Iterable[Case]) -> list[Score]:
    """Estimates of all rows that are not refused and that the predictor can say."""
    found = []
    for case in rows:
        estimate = predict(case.job) if case.job is not None else None
        if estimate is not None:
            found.append(Score(case, estimate))
    return found


def compute_only(job: Job) -> Bounds | None:
    """What one GPU computes; None for rows over several nodes, or cut by tensor, pipeline, context or expert parallelism."""
    layout = job.layout
    if job.machine.nodes > 1 or max(layout.tensor, layout.pipeline, layout.context, layout.expert) > 1:
        return None
    return compute_seconds(job)


def whole_step() -> Predictor | None:
    """The step with communication and bubbles, where the package has it: ``step.step_time(job)``, bounds or something with ``seconds``."""
    try:
        step = import_module("fullstep.physics.timing.step")
    except ModuleNotFoundError:
        return None

    def predict(job: Job) -> Bounds | None:
        found = step.step_time(job)
        bounds: Bounds | None = getattr(found, "seconds", found)
        return bounds

    return predict


def _line(label: str, scores: list[Score]) -> str:
    errors = [found.error_percent for found in scores]
    mean, bias = statistics.mean(map(abs, errors)), statistics.mean(errors)
    inside = 100 * sum(found.inside for found in scores) / len(scores)
    return f"| {label} | {len(scores)} | {mean:.1f} | {bias:+.1f} | {max(found.factor for found in scores):.2f} | {inside:.0f} |"


def page(what: str, scores: list[Score], rows: list[Case]) -> str:
    """The table as Markdown."""
    head = "| group | rows | mean absolute error (%) | mean error (%) | worst factor | inside bounds (%) |\n|---|---:|---:|---:|---:|---:|"
    groups: dict[tuple[bool, str], list[Score]] = {}
    for found in scores:
        groups.setdefault((not found.case.scored, found.case.group), []).append(found)
    known = [found for found in scores if found.case.scored]
    gaps, unsaid = remarks("gap"), remarks("unsaid")
    lines = [
        "# Step time against published runs", "",
        "Written by `python validation/throughput.py`. " + what, "",
        f"Aim for the groups of the first table: {TARGET_MEAN_PERCENT} % mean absolute error, no row off by more than a factor of "
        f"{TARGET_FACTOR}; nothing is fitted per group.", "",
        "## The worksheet says all, the hardware is known", "", head,
        *(_line(group, found) for (other, group), found in sorted(groups.items()) if not other),
        *([_line("**all**", known)] if known else []), "",
        "## Card guessed, or something left unsaid that decides the time", "",
        "Virtual pipeline stages and the generation of the attention kernel have no key in the worksheet.", "", head,
        *(_line(group, found) for (other, group), found in sorted(groups.items()) if other), "",
        *(f"- {', '.join(names for names in unsaid if unsaid[names] == reason)}: {reason}" for reason in dict.fromkeys(unsaid.values())),
        "",
        "## Off by more than the aim", "",
        *(
            f"- {one.case.name}: likely {one.estimate.likely:.3g} s, measured {one.case.seconds:.3g} s, {one.error_percent:+.0f} %: "
            f"{gaps.get(one.case.name, 'no mechanism found')}"
            for one in sorted(known, key=lambda found: -found.factor) if one.factor > TARGET_FACTOR
        ), "",
        "## Refused worksheets", "",
        *(f"- {case.name}: {case.refused}" for case in rows if case.refused), "",
        "## Left out", "",
        *(f"- {len(entry['ids'])} rows: {entry['reason']}" for entry in exclusions()), "",
    ]  # fmt: skip
    return "\n".join(lines)


def exclusions() -> list[Remark]:
    """Published rows that are not scored."""
    found: list[Remark] = tomllib.loads(EXCLUSIONS.read_text(encoding="utf-8"))["excluded"]
    return found


def remarks(kind: Literal["unsaid", "gap"]) -> dict[str, str]:
    """By row: what its source leaves unsaid, or what is known of its error."""
    found: list[Remark] = tomllib.loads(NOTES.read_text(encoding="utf-8"))[kind]
    return {name: " ".join(remark["reason"].split()) for remark in found for name in remark["ids"]}


def main(arguments: list[str]) -> None:
    whole = None if "--compute-only" in arguments else whole_step()
    rows = cases()
    what = (
        "Whole steps." if whole is not None
        else "What one GPU computes alone, without communication: single-node rows that cut nothing but the batch and the state."
    )  # fmt: skip
    scores = score(whole or compute_only, rows)
    PAGE.write_text(page(what, scores, rows), encoding="utf-8")
    if "--rows" in arguments:
        for found in scores:
            print(f"{found.case.name:60s} {found.case.seconds:9.3f} {found.estimate.likely:9.3f} {found.error_percent:+6.1f} %")
    print(_line("all", [found for found in scores if found.case.scored]))


if __name__ == "__main__":
    main(sys.argv[1:])
