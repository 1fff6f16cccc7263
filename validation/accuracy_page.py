"""The tables of accuracy in Markdown: the whole page for the docs, and the short table for the README."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from accuracy_scores import Outcome, Score, Summary, by_group, by_tier, judge, summarize
from known_gaps import Gap, gap_of
from published_cases import Case
from traced_cases import score_traces, traced_peaks, traced_rows

from fullstep.quantities import GIB

WHAT_IT_TOOK = Path(__file__).resolve().parent / "what_it_took.md"
LARGEST = 10

_HEAD = """\
# Accuracy

The estimates against measurements that others published. This page is generated (`make accuracy`); the cases with their sources are in
[validation/](../validation/README.md), and a test fails when a group gets worse or this page is not what comes out.

Error: (likely - measured) / measured of the peak per GPU, counter against counter; below zero, the estimate is too low. Where a source
does not say which counter it printed (*unspecified*), the nearest of the three is compared. Inside: share of measured peaks between low and
high. Width: (high - low) / likely, median. Tier A: every key known and the counter checked. Tier B: counter not stated, or a framework with
habits of its own. No case is left out.

Allocated follows from mechanisms; no number in it is fitted, but a few habits (do outputs and gradients stay alive?) were inferred from
these runs: `src/fullstep/job/data/habits.json` says which. Reserved and device are another matter: the shares that describe the caching
allocator, and the widths of the bounds (`src/fullstep/physics/memory/data/allocator.json`), were read off the fms-acceleration runs,
and the bounds for stacks of their own off litgpt's table, which are scored here as well. For those sources device, inside and width are no
independent check.
"""


def page(cases: Sequence[Case], outcome: Outcome, gaps: Sequence[Gap]) -> str:
    """docs/accuracy.md."""
    parts = (
        _HEAD,
        "## By tier and counter\n",
        tier_table(outcome),
        "## Verdicts\n",
        _verdicts(outcome),
        "## By source\n",
        _group_table(outcome),
        "## Traces beside the estimates\n",
        _traces(cases, outcome),
        "## Worksheets refused\n",
        _refusals(outcome),
        f"## The {LARGEST} largest errors\n",
        _largest(outcome.scores, gaps),
        "## What is known to be missing\n",
        _gaps(outcome.scores, gaps),
        WHAT_IT_TOOK.read_text(encoding="utf-8"),
        "## Sources\n",
        _sources(cases),
    )
    return "\n".join(parts)


def short_table(cases: Sequence[Case], outcome: Outcome) -> str:
    """What the README shows between its markers."""
    judged = judge(outcome.verdicts)
    sentence = (
        f"{len(cases)} published runs, {len(outcome.scores)} peaks.\nVerdicts: {judged.false_fits} false fits among the"
        f" {judged.ran_out.total()} runs that ran out of memory, {judged.false_refusals} false refusals among the {judged.ran.total()}"
        f" that ran, {judged.decided_percent:.0f} % decided.\n{_refused_in_short(outcome)}"
    )
    return f"{tier_table(outcome)}\n{sentence}\n"


def tier_table(outcome: Outcome) -> str:
    """One row per tier and counter."""
    head = ("tier", "counter", "peaks", "mean error", "median error", "worst under", "worst over", "inside", "width")
    rows = []
    for (tier, counter), scores in by_tier(outcome.scores).items():
        summary = summarize(scores)
        rows.append((tier, counter, *_figures(summary), _signed(summary.worst_under), _signed(summary.worst_over), *_bounds(summary)))
    return _table(head, rows, left=2)


def _group_table(outcome: Outcome) -> str:
    head = ("source", "tiers", "counter", "peaks", "mean error", "median error", "worst under", "worst over", "inside", "width")
    rows = []
    for (group, counter), scores in by_group(outcome.scores).items():
        summary = summarize(scores)
        tiers = ", ".join(sorted({score.case.tier for score in scores}))
        worst = (_signed(summary.worst_under, named=True), _signed(summary.worst_over, named=True))
        rows.append((group, tiers, counter, *_figures(summary), *worst, *_bounds(summary)))
    return _table(head, rows, left=3)


def _verdicts(outcome: Outcome) -> str:
    judged = judge(outcome.verdicts)
    words = ("fits", "tight", "does_not_fit", "unknown")
    rows = [("ran", *(str(judged.ran[word]) for word in words)), ("ran out of memory", *(str(judged.ran_out[word]) for word in words))]
    tight = [f"`{item.case.name}` ({'ran' if item.case.ran else 'ran out'})" for item in outcome.verdicts if item.verdict == "tight"]
    false = [f"`{item.case.name}`" for item in outcome.verdicts if item.false_fit or item.false_refusal]
    lines = [
        _table(("the run", *words), rows, left=1),
        f"False fits: {judged.false_fits} of {judged.ran_out.total()}. False refusals: {judged.false_refusals} of {judged.ran.total()}"
        f" ({judged.false_refusal_percent:.1f} %). Decided: {judged.decided_percent:.0f} %.",
        f"\nWrong: {', '.join(false) or 'none'}. Tight: {', '.join(tight) or 'none'}.\n",
        "Few sources say that a run ran out; most leave its figures blank. Some of these runs were last sampled well under the size of"
        " the card, which is consistent with one large request that failed (logits of a loss that materialises them), but not proven.\n",
    ]
    return "\n".join(lines)


def _refusals(outcome: Outcome) -> str:
    if not outcome.refusals:
        return "None.\n"
    rows = [
        (f"`{refusal.case.name}`", "; ".join(f"{fault.where.removeprefix('worksheet: ')}: {fault.found}" for fault in refusal.faults))
        for refusal in outcome.refusals
    ]
    return _table(("case", "why"), rows, left=2)


def _traces(cases: Sequence[Case], outcome: Outcome) -> str:
    """The same published peaks against one traced step of the real class."""
    estimated = {(score.case.name, score.counter): score.estimated_bytes.likely for score in outcome.scores}
    peaks = traced_peaks()
    scores = score_traces(estimated, peaks, cases)
    refused = Counter(peak.refused.partition(":")[0] for peak in peaks.values() if peak.refused)
    head = ("source", "counter", "peaks", "estimates' mean error", "traces' mean error", "trace, worst under", "trace, worst over")
    why = "; ".join(f"{text} ({count})" for text, count in refused.most_common())
    runs = len({score.case.name for score in scores})
    intro = (
        f"{runs} of the {len(cases)} runs were traced ([how](trace.md)), with the installed versions of the libraries,"
        " which are newer than those of most sources. Reserved is the replay of the traced stream through the allocator's model; device"
        " adds context and communicators."
    )
    rest = f"Not traced: {why or 'none'}; not tried: {len(cases) - len(peaks)}.\n"
    return "\n".join((f"{intro}\n", _table(head, traced_rows(scores), left=2), rest))


def _refused_in_short(outcome: Outcome) -> str:
    count = len(outcome.refusals)
    return f"{count} {'worksheet' if count == 1 else 'worksheets'} refused, with the reason." if count else "No worksheet refused."


def _largest(scores: Iterable[Score], gaps: Sequence[Gap]) -> str:
    ordered = sorted(scores, key=lambda score: (-abs(score.error_percent), score.case.name))[:LARGEST]
    rows = []
    for score in ordered:
        gap = gap_of(score, gaps)
        sizes = (f"{score.measured_bytes / GIB:.2f}", f"{score.estimated_bytes.likely / GIB:.2f}", _percent(score.error_percent))
        known = f"[{gap.title}](#{_anchor(gap.title)})" if gap else "not looked into yet"
        rows.append((f"`{score.case.name}`", score.counter, known, *sizes))
    return _table(("case", "counter", "what is known", "measured GiB", "likely GiB", "error"), rows, left=3)


def _gaps(scores: Sequence[Score], gaps: Sequence[Gap]) -> str:
    return "\n".join(_gap(gap, [score for score in scores if gap_of(score, gaps) is gap]) for gap in gaps)


def _gap(gap: Gap, scores: Sequence[Score]) -> str:
    if not scores:
        return f"### {gap.title}\n\n{gap.missing}\n"
    errors = sorted(score.error_percent for score in scores)
    sizes = sorted((score.estimated_bytes.likely - score.measured_bytes) / GIB for score in scores)
    if len(scores) == 1:
        found = f"1 peak: {_percent(errors[0])}, {_number(sizes[0])} GiB."
    else:
        percent, gib = (f"{_number(values[0])} to {_number(values[-1])}" for values in (errors, sizes))
        found = f"{len(scores)} peaks: {percent} %, {gib} GiB."
    return f"### {gap.title}\n\n{found} {gap.missing}\n"


def _sources(cases: Iterable[Case]) -> str:
    counts: dict[tuple[str, str], int] = {}
    for case in cases:
        key = case.group, case.source.split(" (row ")[0]
        counts[key] = counts.get(key, 0) + 1
    rows = [(group, source, str(count)) for (group, source), count in sorted(counts.items())]
    return _table(("group", "where it was published", "cases"), rows, left=2)


def _figures(summary: Summary) -> tuple[str, str, str]:
    return str(summary.peaks), f"{summary.mean_absolute:.1f} %", f"{summary.median_absolute:.1f} %"


def _bounds(summary: Summary) -> tuple[str, str]:
    return f"{summary.inside_share:.0f} %", f"{summary.median_width:.0f} %"


def _signed(score: Score | None, *, named: bool = False) -> str:
    if score is None:
        return "none"
    return _percent(score.error_percent) + (f" `{score.case.name}`" if named else "")


def _percent(value: float) -> str:
    return f"{_number(value)} %"


def _number(value: float) -> str:
    """With its sign, and no minus before zero."""
    return f"{round(value, 1) + 0.0:+.1f}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], *, left: int) -> str:
    """A Markdown table; the first ``left`` columns are text, the others are set to the right."""
    rule = ["---"] * left + ["---:"] * (len(head) - left)
    return "".join(_line(row) for row in (head, rule, *rows))


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def _anchor(title: str) -> str:
    """The fragment that Markdown renderers give a heading."""
    return "".join("-" if letter == " " else letter for letter in title.lower() if letter.isalnum() or letter in " -_")
