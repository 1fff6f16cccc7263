"""The page on formulas and traces: a summary, what differs and why, holdings, and every worksheet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import mean

from traces import INSTANTS, LISTED_PERCENT, Comparison, Disagreement, Pair

from fullstep.ledger import HOLDINGS

GIB = 2**30

_INTRODUCTION = """# Formulas beside traces

{count} worksheets, {models} models in {ways} ways, each sized twice: by the formulas (`fullstep estimate`) and by a trace of one step of
the real class (`fullstep trace`, {versions}). The worksheets stand in `traces_grid.py`, what the traces
saw in `traces.jsonl`. Differences are (estimated - traced) / traced; both include cuBLAS workspaces. This page is written by
`python validation/traces.py`; `--retrace` makes the traces again.
"""


def page(comparisons: Sequence[Comparison], causes: Sequence[Disagreement], versions: Mapping[str, str]) -> str:
    """The page as Markdown."""
    names = [comparison.name.partition("/") for comparison in comparisons]
    introduction = _INTRODUCTION.format(
        count=len(comparisons), models=len({model for model, _, _ in names}), ways=len({way for _, _, way in names}),
        versions=", ".join(f"{name} {version}" for name, version in versions.items()),
    )  # fmt: skip
    parts = [introduction, _summary(comparisons), _listed(comparisons, causes), _holdings(comparisons), _every(comparisons)]
    return "\n".join(parts)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _summary(comparisons: Sequence[Comparison]) -> str:
    rows = []
    for what in ("peak", *INSTANTS, "reserved"):
        found = [(pair.percent, comparison.name) for comparison in comparisons if (pair := _pair(comparison, what)) is not None]
        worst, name = max(found, key=lambda entry: abs(entry[0]))
        within = [100 * sum(abs(percent) <= limit for percent, _ in found) / len(found) for limit in (1, LISTED_PERCENT)]
        rows.append(
            [
                what.replace("_", " "), str(len(found)), f"{mean(abs(percent) for percent, _ in found):.2f} %", f"{worst:+.1f} % ({name})",
                f"{within[0]:.0f} %", f"{within[1]:.0f} %",
            ]
        )  # fmt: skip
    return "## Summary\n\n" + _table(("figure", "compared", "mean error", "worst", "within 1 %", "within 3 %"), rows)


def _pair(comparison: Comparison, what: str) -> Pair | None:
    if what in ("peak", "reserved"):
        return comparison.peak if what == "peak" else comparison.reserved
    return next((pair for at, pair in comparison.instants.items() if at == what), None)


def _listed(comparisons: Sequence[Comparison], causes: Sequence[Disagreement]) -> str:
    """Every difference above the limit, by its cause."""
    found = [(comparison.name, at, percent) for comparison in comparisons for at, percent in comparison.listed.items()]
    text = f"## Above {LISTED_PERCENT:.0f} %\n\n"
    if not found:
        return text + "None.\n"
    for cause in causes:
        rows = [f"{name} {at.replace('_', ' ')} {percent:+.1f} %" for name, at, percent in found if cause.covers(name, at)]
        if rows:
            text += f"**{cause.title}.** {cause.cause}\n{'; '.join(rows)}.\n\n"
    rest = [f"{name} {at} {percent:+.1f} %" for name, at, percent in found if not any(cause.covers(name, at) for cause in causes)]
    return text + (f"**No cause is known yet.** {'; '.join(rest)}.\n" if rest else "")


def _holdings(comparisons: Sequence[Comparison]) -> str:
    """By holding, where formulas and trace have the peak at the same instant: differences as shares of the traced peak."""
    same = [comparison for comparison in comparisons if comparison.estimated_peak_at == comparison.traced_peak_at]
    rows = []
    for holding in HOLDINGS:
        found = []
        for comparison in same:
            pair = comparison.holdings[comparison.traced_peak_at][holding]
            found.append((100 * (pair.estimated - pair.traced) / comparison.peak.traced, comparison.name))
        worst, name = max(found, key=lambda entry: abs(entry[0]))
        rows.append([holding.replace("_", " "), f"{mean(abs(percent) for percent, _ in found):.2f} %", f"{worst:+.1f} % ({name})"])
    head = f"## Holdings at the peak\n\nOver {len(same)} worksheets whose peak both see at one instant; shares of the traced peak.\n\n"
    return head + _table(("holding", "mean difference", "largest"), rows)


def _every(comparisons: Sequence[Comparison]) -> str:
    rows = []
    for comparison in comparisons:
        cells = [_percent(comparison.instants.get(at)) for at in INSTANTS]
        estimated, traced = (f"{size / GIB:.2f}" for size in comparison.peak)
        where = comparison.traced_peak_at.replace("_", " ")
        rows.append([comparison.name, estimated, traced, _percent(comparison.peak), where, *cells, _percent(comparison.reserved)])
    head = ("worksheet", "estimated [GiB]", "traced [GiB]", "peak", "at", *(at.replace("_", " ") for at in INSTANTS), "reserved")
    return "## Every worksheet\n\n" + _table(head, rows)


def _percent(pair: Pair | None) -> str:
    return "" if pair is None else f"{pair.percent:+.1f} %"
