"""A drill of somebody's own training."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from fullstep.errors import Fault, InputError
from fullstep.lab.drill.command.drill import Trial
from fullstep.lab.drill.command.drill import drill_command as run_trial
from fullstep.lab.drill.command.log import pattern_of
from fullstep.ledger.command_drill import CommandDrill


def drill_command(
    command: Sequence[str],
    *,
    to: str | None = None,
    kill_after: float | None = None,
    restart_with: Sequence[str] = (),
    loss_pattern: str | None = None,
    silent_seconds: float = 600.0,
    keep_files: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> CommandDrill:
    """Runs a training undisturbed, runs it again and kills it, starts it once more, and compares the losses that it logs.

    Each of the two trainings finds a new folder in the environment variable CHECKPOINT_DIR, and wherever the command says
    ``{CHECKPOINT_DIR}``. It has to save there, and to look there when it starts.

    Args:
        command: a program and its arguments
        to: folder of the disk to use; None: a temporary one
        kill_after: step; None: the middle of those that it logs
        restart_with: more arguments for the start after the kill
        loss_pattern: regular expression with the groups step and loss; None: usual forms are found
        silent_seconds: without output, after which it counts as hanging
        keep_files: leave its checkpoints there
        progress: is told what is going on

    Raises:
        InputError: it cannot be drilled like this
        LabError: it failed by itself, or hung
    """
    trial = Trial(tuple(command), tuple(restart_with), kill_after, pattern_of(loss_pattern), silent_seconds)
    try:
        if to is not None:
            Path(to).mkdir(parents=True, exist_ok=True)
        room = Path(tempfile.mkdtemp(prefix="fullstep-drill-", dir=to)).resolve()
    except OSError as error:
        raise InputError(Fault("--to", f'"{to}": {error.strerror or error}', "a folder that can be written")) from None
    try:
        return run_trial(trial, room, progress)
    finally:
        if not keep_files:
            shutil.rmtree(room, ignore_errors=True)
