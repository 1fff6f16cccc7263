"""The drill of somebody's own training: three runs, and what they say of each other."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from fullstep.errors import Fault, InputError, LabError
from fullstep.lab.drill.command.run import CommandRun, run_command
from fullstep.ledger.command_drill import CommandDrill, CommandVerdict, ComparedStep

FOLDER = "CHECKPOINT_DIR"
"""environment variable, and in braces a part of the command: a new folder for the checkpoints of each trial"""
GATE = 1e-6
"""relative: rounding of float32 sums stays below it, and faults that were tried above (docs/drill.md)"""
_HUNG = 124
"""what the command timeout returns for one that it stopped"""
_FAR = 10
"""a difference of so many times what the program differs by from itself is no accident"""
LEAST_STEPS = 3
"""a lost scheduler or lost moments change nothing in the first steps"""


class Trial(NamedTuple):
    """What is run, and how its losses are found."""

    command: tuple[str, ...]
    restart_with: tuple[str, ...]
    """arguments that the command gets when it is started again"""
    kill_after: float | None
    """step; None: the middle of the steps that the undisturbed run logged"""
    pattern: re.Pattern[str] | None
    silent_seconds: float


def drill_command(trial: Trial, room: Path, progress: Callable[[str], None]) -> CommandDrill:
    """Runs the command undisturbed, kills a second run of it, starts that again, and compares.

    Args:
        trial: what is run
        room: an empty folder; the two trainings have a folder each in it
        progress: is told what is going on

    Raises:
        InputError: the command cannot be drilled like this
        LabError: it failed by itself, or hung
    """
    whole = _run(trial, room / "undisturbed", "undisturbed run", progress)
    _require_losses(whole, trial)
    folder = room / "killed"
    last = trial.kill_after if trial.kill_after is not None else _middle(list(whole.losses))
    killed = _run(trial, folder, f"run that is killed after step {last:g}", progress, kill_after=last)
    if killed.status is not None or killed.last_step == whole.last_step:
        found = f"step {last:g}, after which the command ended before it could be killed"
        raise InputError(Fault("--kill-after", found, "a step well before the end, of a training that takes a while"))
    try:
        again = _run(trial, folder, "run that goes on", progress, more=trial.restart_with, may_fail=True)
    except LabError as error:
        again = CommandRun(status=_HUNG, tail=(error.what,))
    return _judged(trial, folder, whole, killed, again)


def _run(
    trial: Trial, folder: Path, what: str, progress: Callable[[str], None], *,
    more: Sequence[str] = (), kill_after: float | None = None, may_fail: bool = False,
) -> CommandRun:  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    progress(what)
    command = [part.replace(f"{{{FOLDER}}}", str(folder)) for part in (*trial.command, *more)]
    run = run_command(
        command, {FOLDER: str(folder)}, pattern=trial.pattern, silent_seconds=trial.silent_seconds,
        kill_when=None if kill_after is None else lambda logged: logged.step >= kill_after,
        progress=lambda stage: progress(f"{what}: {stage}"),
    )  # fmt: skip
    if run.status and not may_fail:
        raise LabError(f"the {what} ended with exit code {run.status}", remedy="It has to run by itself first.", details=run.tail)
    return run


def _require_losses(whole: CommandRun, trial: Trial) -> None:
    if len(whole.losses) < LEAST_STEPS + 2:
        found = f"{len(whole.losses)} steps with a loss in its output"
        remedy = "Name them by --loss-pattern, or make it log each step."
        allowed = f'{LEAST_STEPS + 2} or more, as JSON or like "step 3 loss 1.25"'
        raise InputError(Fault("output of the command", found, allowed, remedy))
    if len({tuple(losses) for losses in whole.losses.values()}) == 1:
        found = "the same loss at every step: another state would not show"
        raise InputError(Fault("output of the command", found, "losses that change"))
    if trial.kill_after is not None and not min(whole.losses) <= trial.kill_after < max(whole.losses):
        allowed = f"a step from {min(whole.losses):g} on and before {max(whole.losses):g}"
        raise InputError(Fault("--kill-after", f"{trial.kill_after:g}", allowed))


def _middle(steps: Sequence[float]) -> float:
    """Of the logged steps; late enough for a checkpoint, early enough for steps to compare.

    >>> _middle([1, 2, 3, 4, 5, 6, 7, 8])
    5
    """
    return steps[len(steps) // 2]


def _judged(trial: Trial, folder: Path, whole: CommandRun, killed: CommandRun, again: CommandRun) -> CommandDrill:
    shared = [step for step in again.losses if step in whole.losses]
    compared = tuple(ComparedStep(step, _sorted(whole, step), _sorted(again, step)) for step in shared)
    before = [step for step in killed.losses if step in whole.losses and step != killed.last_step]  # of the last, ranks may be missing
    noise = max((difference(whole.losses[step], killed.losses[step]) for step in before), default=0.0)
    largest = max((difference(each.uninterrupted, each.resumed) for each in compared), default=math.inf)
    verdict, reason, remedy = _verdict(whole, killed, again) or _verdict_of_losses(whole, again, largest, noise)
    files = [each for each in folder.rglob("*") if each.is_file()]
    return CommandDrill(
        verdict=verdict, reason=reason, remedy=remedy, command=trial.command,
        by_epoch=whole.by_epoch, first_step=next(iter(whole.losses)), last_step=whole.last_step or 0.0,
        killed_after_step=killed.last_step or 0.0, resumed_at_step=next(iter(again.losses), None),
        compared=compared, largest_difference=largest, difference_before_kill=noise,
        checkpoint_bytes=sum(each.stat().st_size for each in files), checkpoint_files=len(files),
        undisturbed_seconds=whole.seconds,
        killed_to_first_step_seconds=None if again.first_loss_at is None else again.first_loss_at - killed.ended_at,
    )  # fmt: skip


def _verdict(whole: CommandRun, killed: CommandRun, again: CommandRun) -> tuple[CommandVerdict, str, str] | None:
    """(failed, why, what to do) where the run that goes on did not take up the steps where it should; None: it did."""
    steps, resumed = list(whole.losses), list(again.losses)
    if again.status:
        return "failed", f"started again, it ended with exit code {again.status}: {again.tail[-1] if again.tail else ''}", ""
    if not resumed:
        return "failed", "started again, it logged no step", ""
    if resumed[0] <= steps[0]:
        why = f"it began anew at step {resumed[0]:g}, not from what was saved before the kill after step {killed.last_step:g}"
        return "failed", why, f"Does it save by then, under {FOLDER}, and look there when it starts? Arguments for that: --restart-with."
    if resumed[0] > _next(steps, _next(steps, killed.last_step)):  # it may have ended and saved a step that it had no time to log
        return "failed", f"it went on at step {resumed[0]:g}, which is later than the kill after step {killed.last_step:g}", ""
    expected = [step for step in steps if step >= resumed[0]]
    if resumed != expected:
        odd = next((step for step in (*resumed, *expected) if (step in resumed) != (step in expected)), resumed[0])
        return "failed", f"step {odd:g} was logged by only one of the two runs, or out of order", ""
    return None


def _verdict_of_losses(whole: CommandRun, again: CommandRun, largest: float, noise: float) -> tuple[CommandVerdict, str, str]:
    """(verdict, why, what to do) where the steps are the right ones."""
    if len(again.losses) < LEAST_STEPS:
        why = f"only {len(again.losses)} steps can be compared: lost moments or a lost scheduler may show later"
        return "void", why, "Kill it earlier (--kill-after), or let it run longer."
    seen = {tuple(whole.losses[step]) for step in again.losses}
    if len(seen) < LEAST_STEPS or not all(math.isfinite(float(loss)) for losses in seen for loss in losses):
        why = f"the losses after resuming take only {len(seen)} values, or are no numbers: another state would not show in them"
        return "void", why, "Log more digits, kill it earlier (--kill-after), or see why the loss does not move."
    if largest <= GATE:
        return "passed", _equal(whole, again), ""
    if largest <= max(GATE, _FAR * noise):
        why = f"losses differ by {largest:.1e} after resuming, and already by {noise:.1e} between two runs before any kill"
        return "undecided", why, "Fix all seeds and use deterministic algorithms."
    before = f"by {noise:.1e}" if noise else "in nothing"
    why = f"losses differ by {largest:.1e} after resuming; before the kill two runs differed {before}"
    return "failed", why, "It should log each step: a mean over several differs where the first of them was not repeated."


def _next(steps: Sequence[float], after: float | None) -> float:
    return next((step for step in steps if after is None or step > after), math.inf)


def _equal(whole: CommandRun, again: CommandRun) -> str:
    count = len(again.losses)
    if all(_sorted(whole, step) == _sorted(again, step) for step in again.losses):
        return f"{count} losses after resuming are the same in all digits that were printed"
    return f"{count} losses after resuming differ by at most {GATE:g}, which rounding can"


def _sorted(run: CommandRun, step: float) -> tuple[str, ...]:
    return tuple(sorted(run.losses[step]))


def difference(one: Sequence[str], other: Sequence[str]) -> float:
    """The largest relative difference of losses as they were printed; ranks print theirs in any order.

    >>> difference(["2.0"], ["2.0"]), difference(["2.0", "1.0"], ["1.0", "2.5"]), difference(["nan"], ["nan"]), difference(["1"], [])
    (0.0, 0.2, 0.0, inf)
    """
    if len(one) != len(other):
        return math.inf
    pairs = zip(sorted(map(float, one)), sorted(map(float, other)), strict=True)
    return max((_relative(a, b) for a, b in pairs), default=0.0)


def _relative(one: float, other: float) -> float:
    if one == other or (math.isnan(one) and math.isnan(other)):
        return 0.0
    size = max(abs(one), abs(other))
    return math.inf if not math.isfinite(size) else abs(one - other) / size
