"""`fullstep drill -- CMD`: somebody's own training, run, killed and started again."""

from __future__ import annotations

import argparse
import shlex
import sys

from fullstep.cli import EXIT_DOES_NOT_FIT, EXIT_OK
from fullstep.cli.worksheet_arguments import states_anything
from fullstep.errors import Fault, InputError

_OF_WORKSHEETS = ("cpu", "ranks_after", "after", "mode", "export", "layers", "tokens")
"""options that a command has no use for: it says by itself what it trains, and on what"""


def add_command_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of a drill of a command."""
    group = parser.add_argument_group(
        "drill of a command", "fullstep drill [options] -- CMD runs your own training, kills it, starts it again and compares its losses"
    )
    group.add_argument("--kill-after", metavar="STEP", type=float, help="kill it once it has logged this step (the middle of them)")
    group.add_argument("--restart-with", metavar="ARGUMENTS", default="", help="more arguments for CMD when it is started again")
    group.add_argument("--loss-pattern", metavar="REGEX", help="how it logs: (?P<step>...) and (?P<loss>...)")


def run_command_drill(arguments: argparse.Namespace) -> int:
    """Drills and returns the exit code: 3 where it did not pass.

    Raises:
        InputError: the command line is at fault
        LabError: the command failed by itself, or hung
    """
    from fullstep.api.drilled_command import drill_command  # noqa: PLC0415
    from fullstep.cli.progress import progress  # noqa: PLC0415

    _require_command(arguments)
    with progress("drilling") as say:
        drilled = drill_command(
            arguments.command, to=arguments.to, kill_after=arguments.kill_after, restart_with=_words(arguments.restart_with),
            loss_pattern=arguments.loss_pattern, silent_seconds=arguments.silent_seconds, keep_files=arguments.keep_files, progress=say,
        )  # fmt: skip
    if arguments.json:
        from fullstep.report.command_drill import command_drill_as_dict  # noqa: PLC0415
        from fullstep.report.json import dump  # noqa: PLC0415

        sys.stdout.write(dump(command_drill_as_dict(drilled)) + "\n")
    else:
        from fullstep.report.command_drill import command_drill_text  # noqa: PLC0415
        from fullstep.report.paper import Paper  # noqa: PLC0415

        sys.stdout.write(command_drill_text(drilled, Paper.of(sys.stdout)))
    return EXIT_OK if drilled.verdict == "passed" else EXIT_DOES_NOT_FIT


def _require_command(arguments: argparse.Namespace) -> None:
    faults = []
    if not arguments.command:
        faults.append(Fault("command line", "nothing after --", "a program and its arguments", "fullstep drill -- torchrun train.py"))
    if not arguments.silent_seconds > 0:
        faults.append(Fault("--silent-seconds", f"{arguments.silent_seconds:g}", "more than 0"))
    if states_anything(arguments):
        faults.append(Fault("command line", "a worksheet, or keys of one, and a command after --", "one of the two"))
    stated = [f"--{name.replace('_', '-')}" for name in _OF_WORKSHEETS if _is_stated(getattr(arguments, name))]
    if stated:
        faults.append(Fault("command line", f"{', '.join(stated)} with a command after --", "only with a worksheet"))
    if faults:
        raise InputError(*faults)


def _is_stated(value: object) -> bool:
    """A number is, also where it is 0."""
    return value is not None and value is not False and value != []


def _words(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise InputError(Fault("--restart-with", f'"{text[:60]}": {error}', "arguments as in a shell")) from None
