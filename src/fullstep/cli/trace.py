"""One full step of the real model class, traced on tensors without data: no GPU, no weights. Needs the extra lab."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fullstep.cli import EXIT_DOES_NOT_FIT, EXIT_OK
from fullstep.cli.estimate import fails, remedies_for
from fullstep.cli.worksheet_arguments import add_worksheet_arguments, worksheet_from
from fullstep.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    parser.add_argument("--full-depth", action="store_true", help="trace every block, where else a few of the equal ones are repeated")
    parser.add_argument("--snapshot", metavar="FILE", type=Path, help="also write a memory snapshot, for PyTorch's memory viewer")
    parser.add_argument("--no-cache", action="store_true", help="trace anew, and keep nothing")
    add_worksheet_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Traces and returns the exit code: 3 where it does not fit."""
    from fullstep.api.traced import snapshot_fault, subject_of, trace_subject  # noqa: PLC0415 (after the arguments are known to be good)
    from fullstep.cli.progress import progress  # noqa: PLC0415

    faults = [fault] if arguments.snapshot is not None and (fault := snapshot_fault(arguments.snapshot)) else []
    try:
        subject = subject_of(worksheet_from(arguments))
    except InputError as error:
        raise InputError(*error.faults, *faults) from None
    if faults:
        raise InputError(*faults)
    with progress("tracing") as say:
        answer = trace_subject(
            subject, full_depth=arguments.full_depth, snapshot=arguments.snapshot, progress=say, cache=not arguments.no_cache
        )
    if arguments.json:
        from fullstep.report.json import answer_as_dict, dump  # noqa: PLC0415

        sys.stdout.write(dump(answer_as_dict(answer)) + "\n")
    else:
        from fullstep.report.paper import Paper  # noqa: PLC0415
        from fullstep.report.trace_text import trace_text  # noqa: PLC0415

        helps = remedies_for(subject.job.worksheet) if subject.job is not None and fails(answer) else []
        sys.stdout.write(trace_text(subject.job or subject.settings, answer, Paper.of(sys.stdout), helps))
    return EXIT_DOES_NOT_FIT if fails(answer) else EXIT_OK
