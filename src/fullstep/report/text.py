"""One answer for the terminal: the verdict first, then the peak, its instant and what is alive in it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fullstep.job import Settings
from fullstep.ledger import HOLDINGS, Answer, Instant, MemoryEstimate
from fullstep.plan.layouts import place_words
from fullstep.report.checkpoint_text import STORAGE_CODES, checkpoint_lines
from fullstep.report.instants import instants_lines
from fullstep.report.paper import Paper
from fullstep.report.timing_text import timing_lines
from fullstep.report.wording import HOLDING_WORDS, IN_GIB, INSTANTS, VERDICT_INK, VERDICTS, Unit, gib, headline, span, unit_of

if TYPE_CHECKING:
    from fullstep.plan.remedies import Remedy
    from fullstep.plan.rental import Rental

_MEMORY_SECTIONS = ("model", "method", "precision", "optimizer", "batch", "step", "layout")
_OBVIOUS = ("method.kind", "method.objective", "layout.strategy", "layout.shards", "step.framework_version", "layout.loading")
"""defaults that the headline shows anyway, or that hang on another one"""
_FIRST = (
    "model", "step.framework", "step.attention", "step.loss", "layout.implementation", "step.activation_checkpointing", "batch.packed",
    "precision",
)  # fmt: skip
"""defaults that matter most to memory, by key or section, in this order; the others follow"""
_LONGEST_REASON = 44
_ASSUMED_LINES = 6
_NEEDED = (
    "allocated + unavoidable fragmentation + context: the verdict compares it; reserved may be larger because the cache keeps what it can"
)
_STARTS = {"fits": "It fits", "tight": "Tight", "does_not_fit": "Does not fit", "unknown": "Not decidable"}


def answer_text(job: Settings, answer: Answer, paper: Paper, remedies: Sequence[Remedy] = (), rentals: Sequence[Rental] = ()) -> str:
    """The whole report on one worksheet as written.

    Args:
        job: the completed worksheet
        answer: what it was answered with
        paper: how to print
        remedies: single changes that would make it fit, best first
        rentals: of its machines, on demand before interruptible
    """
    lines = [paper.ink(piece, "bold") for piece in paper.sentence(headline(job), indent=0)]
    lines += ["", *verdict_lines(job, answer, paper), ""]
    lines += memory_lines(answer, paper)
    lines += ["", *instants_lines(answer, paper), ""]
    lines += other_lines(job, answer, paper)
    lines += timing_lines(job, answer, paper)
    lines += checkpoint_lines(answer, paper)
    if rentals:
        from fullstep.report.cost_text import cost_lines  # noqa: PLC0415 (only what has a price pays for it)

        lines += cost_lines(rentals, job, paper, datetime.now(tz=UTC).date())
    lines += remedy_lines(remedies, paper)
    lines += closing_lines(answer, paper)
    return paper.finish(lines)


def verdict_lines(job: Settings, answer: Answer, paper: Paper) -> list[str]:
    """The verdict as one sentence."""
    verdict = answer.memory.verdict
    reason = answer.memory.reason
    if answer.host.verdict == "does_not_fit" and verdict != "does_not_fit":
        verdict = "does_not_fit"
        reason = f"the node needs {gib(answer.host.memory_peak_bytes)} GiB of host memory at {answer.host.at}"
    where = place_words(job)
    sentence = f"{_STARTS[verdict]}: {where}; {reason}."
    return [paper.ink(piece, "bold", VERDICT_INK[verdict]) for piece in paper.sentence(sentence)]


def memory_lines(answer: Answer, paper: Paper) -> list[str]:
    """The three counters, the instant, and its holdings as bars in two columns."""
    memory, unit = answer.memory, _unit_of(answer)
    there = "" if memory.usable_bytes is None else f", of {gib(memory.usable_bytes)}{'' if unit is IN_GIB else ' GiB'} usable"
    counters = (
        f"{unit.sized(memory.allocated_peak_bytes.likely)} allocated ({unit.span(memory.allocated_peak_bytes)}) · "
        f"{unit.span(memory.reserved_peak_bytes)} reserved · {unit.span(memory.device_peak_bytes)} on the device{there} · {memory.evidence}"
    )
    lines = paper.entry("Peak per GPU", counters)
    if answer.estimated is not None:
        lines += paper.entry("", _estimated_words(answer.estimated, unit))
    for key, row in answer.measured.items():
        if key.endswith("_peak_bytes"):
            lines += _pilot_lines(key, row, unit, paper)
    lines += paper.entry("needed", f"{unit.span(memory.needed_bytes)} {unit.name} = {_NEEDED}")
    if memory.evidence == "measured":
        witness = "estimated" if answer.trace is None else "traced"
        lines += paper.entry("", f"table: {witness}, the peak is the pilot's: its counters do not tell what they hold")
    peak = memory.peak
    place = f", {peak.place}" if peak.place and peak.place not in INSTANTS[peak.at] else ""
    lines += paper.entry("at", INSTANTS[peak.at] + place)
    return lines + bar_lines(peak, paper, unit)


def _unit_of(answer: Answer) -> Unit:
    return unit_of(answer.memory.allocated_peak_bytes.likely)


def _estimated_words(estimated: MemoryEstimate, unit: Unit) -> str:
    """The formulas' counters, beside traced ones."""
    return (
        f"estimated: {unit.sized(estimated.allocated.likely)} allocated ({unit.span(estimated.allocated)}) · "
        f"{unit.span(estimated.reserved)} reserved · {unit.span(estimated.device)} on the device · {unit.span(estimated.needed)} needed"
    )


def _pilot_lines(key: str, row: Any, unit: Unit, paper: Paper) -> list[str]:
    """A counter that a pilot measured, beside what the other witnesses say of it."""
    said = [f"{unit.span(bounds)} {word}" for bounds, word in ((row.estimated, "estimated"), (row.traced, "traced")) if bounds is not None]
    best = row.traced or row.estimated
    if best is None:
        return []
    doubt = "" if best.low <= row.measured <= best.high else "; they disagree: was the pilot this very worksheet?"
    return paper.entry("", f"{key.removesuffix('_peak_bytes')}: {unit.sized(row.measured)} measured, {', '.join(said)}{doubt}")


def bar_lines(peak: Instant, paper: Paper, unit: Unit = IN_GIB) -> list[str]:
    """What is alive at the peak, as far as it shows; the longest bar is half of it."""
    total = sum(peak.holdings) or 1.0
    present = [(HOLDING_WORDS[name], value) for name, value in zip(HOLDINGS, peak.holdings, strict=True) if unit.shows(value)]
    cells = [f"{words:<17} {unit.number(value):>7} {paper.bar(2 * value / total):<10}" for words, value in present]
    return ["    " + "   ".join(cells[start : start + 2]) for start in range(0, len(cells), 2)]


def other_lines(job: Settings, answer: Answer, paper: Paper) -> list[str]:
    """Peaks outside the step, and host memory."""
    unit = _unit_of(answer)
    peaks = [f"{name} {unit.number(peak)}" for name, peak in answer.memory.other_peaks._asdict().items() if peak is not None]
    lines = paper.entry("Other peaks", " · ".join(peaks) + f" {unit.name}") if peaks else []
    available = job.machine.host_memory_bytes
    if answer.host.evidence == "traced":
        offloaded = f"{gib(answer.host.memory_peak_bytes)} GiB offloaded per node"
        return lines + paper.entry("Host memory", f"{offloaded}; loading, evaluation and saving are open: the formulas do not cover this")
    there = "how much is there is not stated" if available is None else f"of {gib(available)}, {VERDICTS[answer.host.verdict]}"
    return lines + paper.entry("Host memory", f"{gib(answer.host.memory_peak_bytes)} GiB per node at {answer.host.at}, {there}")


def remedy_lines(remedies: Sequence[Remedy], paper: Paper) -> list[str]:
    """The changes that would make it fit: those that leave the training as it is first."""
    lines: list[str] = []
    for alters, label in ((False, "Would fit"), (True, "Alters it")):
        for number, remedy in enumerate(remedy for remedy in remedies if remedy.changes_training is alters):
            needed = f"{span(remedy.answer.memory.needed_bytes)} GiB needed"
            lines += paper.entry(label if number == 0 else "", f"{remedy.words}: {needed}")
    return lines


def closing_lines(answer: Answer, paper: Paper) -> list[str]:
    """Warnings, what was assumed, and how sure this is."""
    lines: list[str] = []
    warnings = [each for each in answer.warnings if answer.checkpoint is None or each.code not in STORAGE_CODES]
    for number, (code, text) in enumerate(warnings):
        lines += paper.entry("Beware" if number == 0 else "", f"{text} ({code})")
    lines += assumed_lines(answer, paper)
    known = dict(answer.timing.open) if answer.timing is not None else {}
    if known:
        lines += paper.entry("Open", " · ".join(f"{part}: {why}" for part, why in known.items()))
    return lines + paper.entry("Sure?", sureness(answer))


def assumed_lines(answer: Answer, paper: Paper) -> list[str]:
    """Defaults that bear on memory, those that matter most first, each with the short form of its reason; the rest is counted."""
    told = [
        (key, f"{key} = {_plain(value)}{_short(why)}")
        for key, value, why in answer.assumptions
        if key.partition(".")[0] in _MEMORY_SECTIONS and value not in (None, False) and key not in _OBVIOUS
    ]
    shown = [text for _, text in sorted(told, key=lambda entry: _importance(entry[0]))]
    for count in range(len(shown), -1, -1):
        rest = len(answer.assumptions) - count
        lines = paper.entry("Assumed", " · ".join(shown[:count] + ([f"and {rest} more under --json"] if rest else [])))
        if len(lines) <= _ASSUMED_LINES:
            return lines if answer.assumptions else []
    return []


def _importance(key: str) -> int:
    return next((place for place, first in enumerate(_FIRST) if key == first or key.startswith(f"{first}.")), len(_FIRST))


def sureness(answer: Answer) -> str:
    """How the figures are known and what would settle them."""
    settle = "run one full step and put its peak into [measured] (torch.cuda.max_memory_allocated() / 2**30)"
    if answer.memory.evidence == "measured":
        return f"a pilot's own figures; what it did not measure is {'estimated' if answer.trace is None else 'traced'} around them"
    if answer.memory.evidence == "traced":
        return f"traced: one step of the real model class, replayed through a model of torch's allocator; to settle it, {settle}"
    unit = _unit_of(answer)
    return f"estimated by formulas: {unit.span(answer.memory.allocated_peak_bytes)} {unit.name} allocated; to settle it, {settle}"


def _short(why: str) -> str:
    """The first clause of a reason in brackets; nothing where it is too long to be shown whole.

    >>> _short("DeepSpeed keeps them; see its source")
    ' (DeepSpeed keeps them)'
    """
    clause = why.partition(";")[0].partition(": ")[0]
    return f" ({clause})" if len(clause) <= _LONGEST_REASON else ""


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)
