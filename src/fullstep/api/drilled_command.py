"""A drill of somebody's own training."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from fullstep.errors import Fault, InputError
from fullstep.errors.stops import stoppable, stops_wait
from fullstep.lab.drill.command.drill import Trial
from fullstep.lab.drill.command.drill import drill_command as run_trial
from fullstep.lab.drill.command.log import pattern_of
from fullstep.lab.drill.front.place import DrillFolder, is_url
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
    if to is not None and is_url(to):
        raise InputError(Fault("--to", f'"{to[:80]}"', "a folder", "A command finds its checkpoints' folder in CHECKPOINT_DIR."))
    with stops_wait(), DrillFolder(to if to is not None else tempfile.gettempdir(), keep_files) as folder, stoppable():
        return run_trial(trial, Path(folder.path).resolve(), progress)
