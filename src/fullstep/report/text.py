"""One answer for the terminal: the verdict first, then the peak, its instant and what is alive in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fullstep.job import Job
from fullstep.ledger import HOLDINGS, Answer, Instant
from fullstep.plan.layouts import layout_words, machine_words
from fullstep.report.paper import Paper
from fullstep.report.wording import HOLDING_WORDS, INSTANTS, VERDICT_INK, VERDICTS, gib, headline, span

if TYPE_CHECKING:
    from fullstep.plan.remedies import Remedy

_SHORT_HOLDINGS = ("weights", "grads", "states", "activ.", "logits", "gathered", "temp.", "buffers")
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
_CELL = 9
_WEIGHTS = HOLDINGS.index("weights")
_STARTS = {"fits": "It fits", "tight": "Tight", "does_not_fit": "Does not fit", "unknown": "Not decidable"}


def answer_text(job: Job, answer: Answer, paper: Paper, remedies: Sequence[Remedy] = ()) -> str:
    """The whole report on one worksheet as written.

    Args:
        job: the completed worksheet
        answer: what it was answered with
        paper: how to print
        remedies: single changes that would make it fit, best first
    """
    lines = [paper.ink(piece, "bold") for piece in paper.sentence(headline(job), indent=0)]
    lines += ["", *verdict_lines(job, answer, paper), ""]
    lines += memory_lines(answer, paper)
    lines += ["", *instants_table(answer, paper), ""]
    lines += other_lines(job, answer, paper)
    lines += remedy_lines(remedies, paper)
    lines += closing_lines(answer, paper)
    return paper.finish(lines)


def verdict_lines(job: Job, answer: Answer, paper: Paper) -> list[str]:
    """The verdict as one sentence."""
    verdict = answer.memory.verdict
    reason = answer.memory.reason
    if answer.host.verdict == "does_not_fit" and verdict != "does_not_fit":
        verdict = "does_not_fit"
        reason = f"the node needs {gib(answer.host.memory_peak_bytes)} GiB of host memory at {answer.host.at}"
    where = machine_words(job) if job.layout.strategy == "single" else f"{machine_words(job)}, {layout_words(job)}"
    sentence = f"{_STARTS[verdict]}: {where}; {reason}."
    return [paper.ink(piece, "bold", VERDICT_INK[verdict]) for piece in paper.sentence(sentence)]


def memory_lines(answer: Answer, paper: Paper) -> list[str]:
    """The three counters, the instant, and its holdings as bars in two columns."""
    memory = answer.memory
    there = "" if memory.usable_bytes is None else f", of {gib(memory.usable_bytes)} usable"
    counters = (
        f"{gib(memory.allocated_peak_bytes.likely)} GiB allocated ({span(memory.allocated_peak_bytes)}) · "
        f"{span(memory.reserved_peak_bytes)} reserved · {span(memory.device_peak_bytes)} on the device{there} · {memory.evidence}"
    )
    lines = paper.entry("Peak per GPU", counters)
    for key, row in answer.measured.items():
        if row.estimated is not None:
            counter = key.removesuffix("_peak_bytes")
            outside = not row.estimated.low <= row.measured <= row.estimated.high
            doubt = "; they disagree: was the pilot this very worksheet?" if outside else ""
            lines += paper.entry("", f"{counter}: {gib(row.measured)} GiB measured, {span(row.estimated)} estimated{doubt}")
    lines += paper.entry("needed", f"{span(memory.needed_bytes)} GiB = {_NEEDED}")
    if memory.evidence == "measured":
        lines += paper.entry("", "table: estimated, the peak is the pilot's: its counters do not tell what they hold")
    peak = memory.peak
    place = f", {peak.place}" if peak.place and peak.place not in INSTANTS[peak.at] else ""
    lines += paper.entry("at", INSTANTS[peak.at] + place)
    return lines + bar_lines(peak, paper)


def bar_lines(peak: Instant, paper: Paper) -> list[str]:
    """What is alive at the peak, as far as it shows in GiB; the longest bar is half of it."""
    total = sum(peak.holdings) or 1.0
    present = [(HOLDING_WORDS[name], value) for name, value in zip(HOLDINGS, peak.holdings, strict=True) if _shows(value)]
    cells = [f"{words:<17} {gib(value):>7} {paper.bar(2 * value / total):<10}" for words, value in present]
    return ["    " + "   ".join(cells[start : start + 2]) for start in range(0, len(cells), 2)]


def instants_table(answer: Answer, paper: Paper) -> list[str]:
    """Every instant of the step with what is alive in it, in GiB; where the paper is narrow the smallest holdings go into one column,
    but never the weights."""
    memory = answer.memory
    most = [max(instant.holdings[index] for instant in memory.instants) for index in range(len(HOLDINGS))]
    used = [index for index in range(len(HOLDINGS)) if _shows(most[index])]
    room = (paper.width - 26) // _CELL
    kept = sorted(sorted(used, key=lambda index: (index != _WEIGHTS, -most[index]))[: room if len(used) <= room else room - 1])
    merged = [index for index in used if index not in kept]
    names = [_SHORT_HOLDINGS[index] for index in kept] + (["other"] if merged else [])
    unit = "GiB, estimated" if memory.evidence == "measured" else "GiB"
    lines = ["  " + f"{unit:<15}{'allocated':>9}" + "".join(f"{name:>{_CELL}}" for name in names)]
    for instant in memory.instants:
        sizes = [instant.holdings[index] for index in kept] + ([sum(instant.holdings[index] for index in merged)] if merged else [])
        cells = "".join(f"{gib(size):>{_CELL}}" for size in sizes)
        row = f"  {instant.at.replace('_', ' '):<15}{gib(sum(instant.holdings)):>9}{cells}"
        lines.append(paper.ink(row, "bold") if instant.at == memory.peak_at else row)
    return lines


def other_lines(job: Job, answer: Answer, paper: Paper) -> list[str]:
    """Peaks outside the step, and host memory."""
    peaks = [f"{name} {gib(peak)}" for name, peak in answer.memory.other_peaks._asdict().items() if peak is not None]
    lines = paper.entry("Other peaks", " · ".join(peaks) + " GiB") if peaks else []
    available = job.machine.host_memory_bytes
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
    for number, (code, text) in enumerate(answer.warnings):
        lines += paper.entry("Beware" if number == 0 else "", f"{text} ({code})")
    lines += assumed_lines(answer, paper)
    lines += paper.entry("Open", "step time, traffic, checkpoint and run: not modelled yet")
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


def _shows(size_bytes: float) -> bool:
    """More than 0.0 in GiB with one decimal."""
    return gib(size_bytes) != gib(0)


def sureness(answer: Answer) -> str:
    """How the figures are known and what would settle them."""
    settle = "run one full step and put its peak into [measured] (torch.cuda.max_memory_allocated() / 2**30)"
    if answer.memory.evidence == "measured":
        return "a pilot's own figures; what it did not measure is estimated around them"
    return f"estimated by formulas: {span(answer.memory.allocated_peak_bytes)} GiB allocated; to settle it, {settle}"


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
