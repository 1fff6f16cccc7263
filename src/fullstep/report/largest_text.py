"""What fits at most, for the terminal."""

from __future__ import annotations

from fullstep.plan.largest import Largest
from fullstep.plan.layouts import machine_words
from fullstep.plan.trial import Trial
from fullstep.report.paper import Paper
from fullstep.report.text import closing_lines, memory_lines, remedy_lines
from fullstep.report.wording import VERDICTS, gib, headline, span

_RANKS = {"prefix_tuning": "number of virtual tokens", "bottleneck": "width of the bottleneck"}


def largest_text(found: Largest, paper: Paper) -> str:
    """The value, its memory, and what the next larger one would need."""
    if found.trial is None:
        smallest = f"Not even the smallest {_words(found)} fits."
        lines = [paper.ink(piece, "bold", "red") for piece in paper.sentence(smallest, indent=0)]
        return paper.finish(lines + _next_lines(found, paper) + remedy_lines(found.remedies, paper))
    job = found.trial.job
    sentence = f"Largest {_words(found)} that fits {machine_words(job)}: {_shown(found.value)}."
    lines = [paper.ink(piece, "bold") for piece in paper.sentence(headline(job), indent=0)]
    lines += ["", *(paper.ink(piece, "bold", "green") for piece in paper.sentence(sentence)), ""]
    lines += memory_lines(found.trial.answer, paper)
    lines += _next_lines(found, paper)
    if found.note:
        lines += paper.entry("Bounded", found.note)
    return paper.finish(lines + closing_lines(found.trial.answer, paper))


def _words(found: Largest) -> str:
    """What grows, in the words of the method: method.rank is not a rank for every one."""
    trial = found.trial or found.next_trial
    kind = trial.job.method.kind if isinstance(trial, Trial) else ""
    return _RANKS.get(kind, "rank") if found.vary == "rank" else found.vary


def _next_lines(found: Largest, paper: Paper) -> list[str]:
    if found.next_value is None or found.next_trial is None:
        return []
    if isinstance(found.next_trial, Trial):
        memory = found.next_trial.answer.memory
        text = f"{span(memory.needed_bytes)} GiB needed of {gib(memory.usable_bytes or 0)}: {VERDICTS[found.next_trial.verdict]}"
    else:
        text = str(found.next_trial.error.faults[0])
    return paper.entry("Next", f"{found.key} = {_shown(found.next_value)}: {text}")


def _shown(value: int | str | None) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
