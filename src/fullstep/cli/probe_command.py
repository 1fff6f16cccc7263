"""`fullstep probe -- CMD`: somebody's own training, measured as it is."""

from __future__ import annotations

import argparse
import sys

from fullstep.cli import EXIT_DOES_NOT_FIT, EXIT_INPUT, EXIT_LAB, EXIT_OK
from fullstep.cli.places import fault_of_place
from fullstep.cli.worksheet_arguments import states_anything
from fullstep.errors import Fault, InputError
from fullstep.ledger.probe import Probe

_OF_WORKSHEETS = ("cpu", "real_weights", "evaluate", "save_to", "limit_gib", "snapshot", "node_rank", "rendezvous")
"""options that a command has no use for: it says by itself what it trains, and on what"""
_EXITS = {"completed": EXIT_OK, "out_of_memory": EXIT_DOES_NOT_FIT, "rank_died": EXIT_LAB, "hung": EXIT_LAB}


def add_command_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of a probe of a command."""
    group = parser.add_argument_group(
        "probe of a command", "fullstep probe [options] -- CMD runs your own training unchanged and measures its optimizer steps"
    )
    group.add_argument("--count-memory", action="store_true", help="on processors, count what torch allocates: a profiler runs along")
    group.add_argument("--show-output", action="store_true", help="pass the command's output on to standard error")
    group.add_argument("--seen", metavar="DIR", help="no command: what fullstep.probing left in a folder (probing(), ProbeCallback)")


def run_command_probe_cli(arguments: argparse.Namespace) -> int:
    """Probes and returns the exit code: 3 where memory ran out, 4 where a rank died or the command hung, 2 where no step was seen.

    Of the parser's common options it reads ``command``, ``steps`` (None: to the end), ``silent_seconds``, ``json`` and ``evidence``.

    Raises:
        InputError: the command line is at fault
        LabError: something of the command cannot be ended
        SystemExit, KeyboardInterrupt: a signal ended it; the record was told before
    """
    _require_command(arguments)
    from fullstep.lab.probe.command.probe import probe_of_folder  # noqa: PLC0415 (after the arguments are known to be good)

    kept: list[bool] = []
    if arguments.command is None:
        found = probe_of_folder(arguments.seen)
        kept.append(_tell(found, arguments))
    else:
        found = _run(arguments, kept)
    if found.outcome == "completed" and not found.ranks:
        return EXIT_INPUT
    return exit_code(found, all(kept))


def _run(arguments: argparse.Namespace, kept: list[bool]) -> Probe:
    from fullstep.cli.progress import progress  # noqa: PLC0415
    from fullstep.lab.probe.command.probe import WantedCommand, run_command_probe  # noqa: PLC0415

    def hear(line: str) -> None:
        if arguments.show_output:
            sys.stderr.write(f"{line}\n")

    wanted = WantedCommand(tuple(arguments.command), arguments.steps, arguments.count_memory, arguments.silent_seconds)
    with progress("probing") as say:
        return run_command_probe(wanted, hear=hear, progress=say, keep=lambda probe: kept.append(_tell(probe, arguments)))


def exit_code(probe: Probe, is_kept: bool) -> int:
    """Of its outcome; of one that completed, whether all that was to be saved and kept is there."""
    is_whole = is_kept and "save_failed" not in probe.environment
    return _EXITS[probe.outcome] or (EXIT_OK if is_whole else EXIT_LAB)


def keep_record(probe: Probe, where: str) -> bool:
    """Writes it into a folder and says where on standard error, or why not: what was measured is told nonetheless.

    Args:
        probe: what was measured
        where: a folder or URL; empty: nothing is written

    Returns:
        False: it was to be kept, and is not
    """
    if not where:
        return True
    from fullstep.formats.probe_record import save  # noqa: PLC0415

    try:
        sys.stderr.write(f"fullstep: the record is {where.rstrip('/')}/{save(probe, where)}\n")
    except InputError as error:
        from fullstep.report.faults import faults_text  # noqa: PLC0415

        sys.stderr.write(f"fullstep: THE RECORD IS NOT KEPT\n{faults_text(error)}")
        return False
    return True


def _tell(probe: Probe, arguments: argparse.Namespace) -> bool:
    """Whether it is kept. Also of a probe that a signal ends: whoever reads a pipe or a file has the record then."""
    is_kept = keep_record(probe, arguments.evidence)
    if arguments.json:
        from fullstep.formats.probe_record import record_of  # noqa: PLC0415
        from fullstep.report.json import dump  # noqa: PLC0415

        sys.stdout.write(dump(record_of(probe)) + "\n")
    else:
        from fullstep.report.command_probe import command_probe_text  # noqa: PLC0415
        from fullstep.report.paper import Paper  # noqa: PLC0415

        sys.stdout.write(command_probe_text(probe, Paper.of(sys.stdout)))
    sys.stdout.flush()
    return is_kept


def _require_command(arguments: argparse.Namespace) -> None:
    faults = []
    if arguments.command is not None and arguments.seen is not None:
        faults.append(Fault("command line", "--seen and a command after --", "one of the two"))
    elif not arguments.command and arguments.seen is None:
        faults.append(Fault("command line", "nothing after --", "a program and its arguments", "fullstep probe -- torchrun train.py"))
    if not arguments.silent_seconds > 0:
        faults.append(Fault("--silent-seconds", f"{arguments.silent_seconds:g}", "more than 0"))
    if arguments.steps is not None and arguments.steps < 1:
        faults.append(Fault("--steps", f"{arguments.steps}", "at least 1, or none of it: to the command's end"))
    if states_anything(arguments):
        faults.append(Fault("command line", "a worksheet, or keys of one, and a command after --", "one of the two"))
    stated = [f"--{name.replace('_', '-')}" for name in _OF_WORKSHEETS if not _is_unset(getattr(arguments, name, None))]
    if stated:
        faults.append(Fault("command line", f"{', '.join(stated)} with a command after --", "only with a worksheet"))
    if (fault := fault_of_place("--evidence", arguments.evidence)) is not None:
        faults.append(fault)
    if faults:
        raise InputError(*faults)


def _is_unset(value: object) -> bool:
    """As a parser leaves it; 0 was stated."""
    return value is None or value is False or value == ""
