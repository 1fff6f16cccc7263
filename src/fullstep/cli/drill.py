"""Saves, kills and resumes a training in real processes, and proves that it goes on as if nothing had happened. Needs the extra lab."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from fullstep.cli import EXIT_DOES_NOT_FIT, EXIT_OK
from fullstep.cli.drill_command import add_command_arguments, run_command_drill
from fullstep.cli.worksheet_arguments import add_worksheet_arguments, worksheet_from
from fullstep.errors import Fault, InputError

if TYPE_CHECKING:
    from fullstep.api.drilled import Drilled
    from fullstep.job import Worksheet

_MODES = ("sync", "thread", "process")
TAKES_COMMAND = True
"""what follows -- is somebody's own training"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("--to", metavar="DIR_OR_URL", help="where checkpoints go: a folder, or a URL that fsspec reaches")
    parser.add_argument("--cpu", metavar="N", type=int, help="N ranks on processors; without it a rank on every GPU")
    parser.add_argument("--ranks-after", metavar="N", type=int, help="resume on N ranks as well")
    parser.add_argument("--after", metavar="KEY=VALUE", action="append", default=[], help="resume in another layout as well: layout.KEY")
    parser.add_argument("--mode", choices=_MODES, help="of saving; without it as checkpoint.asynchronous and async_mode say")
    parser.add_argument("--export", action="store_true", help="also write a full export of the model, and read it back")
    parser.add_argument("--layers", metavar="N", type=int, help="drill N blocks of the model: as much as this machine can hold")
    parser.add_argument("--tokens", metavar="N", type=int, help="drill rows of N tokens")
    parser.add_argument("--silent-seconds", metavar="N", type=float, default=600.0, help="a rank that says nothing for so long hangs (600)")
    parser.add_argument("--keep-files", action="store_true", help="leave the checkpoints there; without it all that was made is removed")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    add_command_arguments(parser)
    add_worksheet_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Drills and returns the exit code: 3 where the drill failed or is void."""
    if arguments.command is not None:
        return run_command_drill(arguments)
    worksheet, after = _asked(arguments)
    from fullstep.api.drilled import drill  # noqa: PLC0415 (after the arguments are known to be good)
    from fullstep.cli.progress import progress  # noqa: PLC0415
    from fullstep.lab.drill import DrillFailedError  # noqa: PLC0415

    try:
        with progress("drilling") as say:
            drilled = drill(
                worksheet, arguments.to, cpu=arguments.cpu, ranks_after=arguments.ranks_after, after=after, mode=arguments.mode,
                export=arguments.export, layers=arguments.layers, tokens=arguments.tokens, keep_files=arguments.keep_files,
                silent_seconds=arguments.silent_seconds, progress=say,
            )  # fmt: skip
    except DrillFailedError as failed:
        _say_failed(failed.leg, failed.what, arguments.json)
        return EXIT_DOES_NOT_FIT
    _say(drilled, arguments.json)
    return EXIT_OK if drilled.drill.verdict == "passed" else EXIT_DOES_NOT_FIT


def _asked(arguments: argparse.Namespace) -> tuple[Worksheet, dict[str, Any]]:
    """The worksheet, and what is different afterwards; all faults of the command line together."""
    faults = [] if arguments.to else [Fault("--to", "none is given", "a folder or a URL", "For example --to /mnt/runs.")]
    if not arguments.silent_seconds > 0:
        faults.append(Fault("--silent-seconds", f"found {arguments.silent_seconds:g}", "more than 0"))
    try:
        worksheet, after = worksheet_from(arguments), _after(arguments.after)
    except InputError as error:
        raise InputError(*error.faults, *faults) from None
    if faults:
        raise InputError(*faults)
    return worksheet, after


def _say(drilled: Drilled, as_json: bool) -> None:
    if as_json:
        from fullstep.report.drill_json import drill_as_dict  # noqa: PLC0415
        from fullstep.report.json import dump  # noqa: PLC0415

        sys.stdout.write(dump(drill_as_dict(drilled.settings, drilled.drill, ["fullstep", *sys.argv[1:]])) + "\n")
    else:
        from fullstep.report.drill_text import drill_text  # noqa: PLC0415
        from fullstep.report.paper import Paper  # noqa: PLC0415

        sys.stdout.write(drill_text(drilled.settings, drilled.drill, Paper.of(sys.stdout)))


def _say_failed(leg: str, what: str, as_json: bool) -> None:
    from fullstep.report.drill_json import failed_as_dict  # noqa: PLC0415
    from fullstep.report.drill_text import failed_text  # noqa: PLC0415
    from fullstep.report.json import dump  # noqa: PLC0415
    from fullstep.report.paper import Paper  # noqa: PLC0415

    sys.stdout.write(dump(failed_as_dict(leg, what)) + "\n" if as_json else failed_text(leg, what, Paper.of(sys.stdout)))


def _after(texts: list[str]) -> dict[str, Any]:
    from fullstep.job import set_overrides  # noqa: PLC0415

    faults = [Fault("--after", f'"{text[:60]}"', "key=value, for example layout.strategy=ddp") for text in texts if "=" not in text]
    if faults:
        raise InputError(*faults)
    return set_overrides(texts)
