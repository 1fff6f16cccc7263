"""The drill of somebody's own training, for the terminal and as JSON."""

from __future__ import annotations

import shlex
from typing import Any

from fullstep import __version__
from fullstep.ledger.command_drill import CommandDrill, ComparedStep
from fullstep.report.checkpoint_text import sized
from fullstep.report.json import finite
from fullstep.report.paper import Paper

_VERDICTS = {"passed": "Passed", "failed": "FAILED", "undecided": "Not decided", "void": "Void"}
_INK = {"passed": "green", "failed": "red", "undecided": "yellow", "void": "red"}
_MOST_ROWS, _FIRST_ROWS = 12, 6


def command_drill_text(drilled: CommandDrill, paper: Paper) -> str:
    """The whole report."""
    lines = [paper.ink(line, "bold") for line in paper.sentence(shlex.join(drilled.command), indent=0)]
    verdict = f"{_VERDICTS[drilled.verdict]}: {drilled.reason}."
    lines += ["", *(paper.ink(line, _INK[drilled.verdict]) for line in paper.sentence(verdict))]
    lines += paper.sentence(drilled.remedy) if drilled.remedy else []
    if drilled.by_epoch:
        lines += ["", *paper.entry("Counted", "by epoch, since the output tells no steps: wherever a step is named it is an epoch")]
    steps = f"steps {drilled.first_step:g} to {drilled.last_step:g}"
    lines += ["", *paper.entry("Undisturbed", f"{steps} in {drilled.undisturbed_seconds:.1f} s")]
    resumed = "logged nothing" if drilled.resumed_at_step is None else f"went on at step {drilled.resumed_at_step:g}"
    killed = f"by SIGKILL, with all that it had started, after it logged step {drilled.killed_after_step:g}"
    lines += paper.entry("Killed", f"{killed}; {resumed}")
    if drilled.killed_to_first_step_seconds is not None:
        lines += paper.entry("Back", f"{drilled.killed_to_first_step_seconds:.1f} s from the kill to the first loss of the new process")
    files = f"{drilled.checkpoint_files:,} file{'' if drilled.checkpoint_files == 1 else 's'}"
    lines += paper.entry("Left behind", f"{sized(drilled.checkpoint_bytes)} in {files}, in the folder of its checkpoints")
    return paper.finish([*lines, *_table(drilled, paper)])


def _table(drilled: CommandDrill, paper: Paper) -> list[str]:
    if not drilled.compared:
        return paper.entry("Compared", "nothing: no step was logged by both the undisturbed run and the one that went on")
    lines = ["", paper.ink(f"  {'epoch' if drilled.by_epoch else 'step':>10}{'undisturbed':>22}{'resumed':>22}", "bold")]
    differing = [each for each in drilled.compared[_FIRST_ROWS:] if _differs(each)]
    shown = [*drilled.compared[:_FIRST_ROWS], *(differing or drilled.compared[_FIRST_ROWS:])[: _MOST_ROWS - _FIRST_ROWS]]
    for each in shown:
        one, other = (" ".join(losses[:2]) + (" …" if len(losses) > 2 else "") for losses in (each.uninterrupted, each.resumed))
        line = f"  {each.step:>10g}{one:>22}{other:>22}" + ("  differs" if _differs(each) else "")
        lines.append(paper.ink(line, "red") if _differs(each) else line)
    left = [each for each in drilled.compared if each not in shown]
    return lines + ([f"  and {len(left)} more, of which {sum(map(_differs, left))} differ"] if left else [])


def _differs(step: ComparedStep) -> bool:
    return step.uninterrupted != step.resumed


def command_drill_as_dict(drilled: CommandDrill) -> dict[str, Any]:
    """Sizes in bytes, times in seconds; an infinite difference is null, as is that of no step at all."""
    compared = [each._asdict() for each in drilled.compared]
    said = {"schema": 1, "fullstep": __version__, "evidence": "measured", "worksheet": None, **drilled._asdict(), "compared": compared}
    if not compared:
        said["largest_difference"] = None
    found: dict[str, Any] = finite(said)
    return found
