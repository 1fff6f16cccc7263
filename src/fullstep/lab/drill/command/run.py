"""One run of somebody's command: its output is passed on to a listener, and nothing of it is left behind."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from fullstep.errors import LabError
from fullstep.errors.stops import stoppable
from fullstep.lab.drill.command.log import Logged, logged_in
from fullstep.lab.ranks.output import Output, command_started

_TAIL_LINES = 12


@dataclass(slots=True)
class CommandRun:
    """What one run printed."""

    losses: dict[float, list[str]] = field(default_factory=dict)
    """by step, in the order of their first appearance"""
    by_epoch: bool = False
    """steps are epochs: the output tells no others"""
    status: int | None = None
    """exit code; None: it was killed on purpose"""
    seconds: float = 0.0
    first_loss_at: float | None = None
    """by the monotonic clock [s]"""
    ended_at: float = 0.0
    tail: tuple[str, ...] = ()

    @property
    def last_step(self) -> float | None:
        """The last that was logged."""
        return next(reversed(self.losses), None)


def run_command(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    pattern: re.Pattern[str] | None = None,
    kill_when: Callable[[Logged], bool] | None = None,
    silent_seconds: float = 600.0,
    progress: Callable[[str], None] = lambda _: None,
) -> CommandRun:
    """Runs it to its end, or kills all of it by SIGKILL at the first loss for which ``kill_when`` holds.

    Raises:
        InputError: there is no such program
        LabError: it said nothing for ``silent_seconds``
    """
    run = CommandRun()
    begun = time.monotonic()
    with command_started(command, {**os.environ, **environment, "PYTHONUNBUFFERED": "1"}) as family:
        output = Output(family)
        with stoppable():
            for line in output.lines():
                _require_sound(output, silent_seconds, run)
                found = None if line is None else _heard(run, line, pattern)
                if found is None:
                    continue
                run.first_loss_at = run.first_loss_at or time.monotonic()
                progress(f"step {found.step:g}, loss {found.loss}")
                if kill_when is not None and kill_when(found):
                    break
            else:
                run.status = _ended(family.first, silent_seconds, run)
        family.kill()
        output.take_rest(ended=run.status is not None)
        for line in output.left():
            _heard(run, line, pattern)
    run.ended_at = time.monotonic()
    run.seconds = run.ended_at - begun
    return run


def _require_sound(output: Output, silent_seconds: float, run: CommandRun) -> None:
    """Raises LabError where nothing came for so long."""
    if output.silent_seconds > silent_seconds:
        what = f"the command printed nothing for {silent_seconds:g} s and was stopped"
        raise LabError(what, remedy="Allow more by --silent-seconds, or make it log.", details=run.tail)


def _ended(process: subprocess.Popen[bytes], silent_seconds: float, run: CommandRun) -> int:
    """Its exit code, once it has closed its output.

    Raises:
        LabError: it goes on for so long, and nobody can hear what it does
    """
    try:
        return process.wait(silent_seconds)
    except subprocess.TimeoutExpired:
        what = f"the command closed its output, had not ended {silent_seconds:g} s later, and was stopped"
        raise LabError(what, remedy="Allow more by --silent-seconds, or let it keep its output open.", details=run.tail) from None


def _heard(run: CommandRun, line: str, pattern: re.Pattern[str] | None) -> Logged | None:
    """Enters a line into the run; the loss in it."""
    run.tail = (*run.tail, line)[-_TAIL_LINES:]
    found = logged_in(line, pattern)
    if found is not None:
        run.losses.setdefault(found.step, []).append(found.loss)
        run.by_epoch |= found.is_epoch
    return found
