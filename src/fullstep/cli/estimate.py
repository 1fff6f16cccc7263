"""The worksheet exactly as written, no search. Two worksheets or more are shown side by side."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from fullstep.cli import EXIT_DOES_NOT_FIT, EXIT_OK, EXIT_OURS
from fullstep.cli.market_arguments import add_market_arguments, renter_if_stated
from fullstep.cli.worksheet_arguments import add_worksheet_arguments, jobs_from, states_anything
from fullstep.errors import Fault, InputError
from fullstep.job import Job, Worksheet
from fullstep.ledger import Answer

if TYPE_CHECKING:
    from fullstep.plan.remedies import Remedy
    from fullstep.plan.renting import Renter


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object instead of text")
    form.add_argument("--jsonl", action="store_true", help="a worksheet (JSON) a line from standard input, an answer a line out")
    parser.add_argument(
        "--exposed-share", type=_share, metavar="X", help="share of the step that communication may take on the network asked for (0.1)"
    )
    parser.add_argument("--evidence", metavar="WHERE", help="records of probes and links: a file, a folder, or a URL that fsspec reaches")
    add_market_arguments(parser)
    add_worksheet_arguments(parser, several=True)


def _share(text: str) -> float:
    """A number between 0 and 1, both excluded."""
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share < 1:
        raise argparse.ArgumentTypeError(f"{text}; allowed: a number above 0 and below 1")
    return share


def run(arguments: argparse.Namespace) -> int:
    """Answers and returns the exit code: 3 where one does not fit."""
    if arguments.jsonl:
        return _stream(arguments)
    from fullstep.api.answer import answer_of  # noqa: PLC0415 (after the arguments are known to be good)
    from fullstep.api.prices import rentals_of  # noqa: PLC0415
    from fullstep.physics.network.required import EXPOSED_SHARE  # noqa: PLC0415

    jobs = jobs_from(arguments)
    renter = renter_if_stated(arguments)
    if arguments.evidence is not None:
        return _with_evidence(arguments, jobs, renter)
    answers = [answer_of(job, arguments.exposed_share or EXPOSED_SHARE, renter) for job in jobs]
    if arguments.json:
        from fullstep.report.json import answer_as_dict, dump  # noqa: PLC0415

        documents = [answer_as_dict(answer) for answer in answers]
        sys.stdout.write((dump(documents[0]) if len(documents) == 1 else dump({"answers": documents})) + "\n")
    elif len(jobs) > 1:
        from fullstep.report.comparison import Column, comparison_text  # noqa: PLC0415
        from fullstep.report.paper import Paper  # noqa: PLC0415

        columns = [Column(job.worksheet.origin, job, answer) for job, answer in zip(jobs, answers, strict=True)]
        sys.stdout.write(comparison_text(columns, Paper.of(sys.stdout)))
    else:
        from fullstep.report.paper import Paper  # noqa: PLC0415
        from fullstep.report.text import answer_text  # noqa: PLC0415

        helps = remedies_for(jobs[0].worksheet) if fails(answers[0]) else []
        rentals = rentals_of(jobs[0], answers[0], renter)
        sys.stdout.write(answer_text(jobs[0], answers[0], Paper.of(sys.stdout), helps, rentals))
        if fails(answers[0]) and jobs[0].machine.card is not None:
            sys.stdout.write("  Combinations of changes: fullstep plan\n")
    return EXIT_DOES_NOT_FIT if any(map(fails, answers)) else EXIT_OK


def _with_evidence(arguments: argparse.Namespace, jobs: list[Job], renter: Renter | None) -> int:
    """One worksheet, with what records say of it."""
    if len(jobs) != 1:
        raise InputError(Fault("--evidence", f"{len(jobs)} worksheets beside it", "one worksheet"))
    from fullstep.api.evidenced import estimate_with_evidence  # noqa: PLC0415 (few ask for it)
    from fullstep.api.prices import rentals_of  # noqa: PLC0415
    from fullstep.calibration.evidence import Records  # noqa: PLC0415
    from fullstep.physics.network.required import EXPOSED_SHARE  # noqa: PLC0415
    from fullstep.report.evidence_used import used_as_dict, used_text  # noqa: PLC0415

    found = estimate_with_evidence(jobs[0], arguments.evidence, arguments.exposed_share or EXPOSED_SHARE, renter)
    records = Records(found.used, found.refused, found.faults)
    if arguments.json:
        from fullstep.report.json import answer_as_dict, dump  # noqa: PLC0415

        sys.stdout.write(dump({**answer_as_dict(found.answer), "records": used_as_dict(records)}) + "\n")
    else:
        from fullstep.report.paper import Paper  # noqa: PLC0415
        from fullstep.report.text import answer_text  # noqa: PLC0415

        paper = Paper.of(sys.stdout)
        helps = remedies_for(found.job.worksheet) if fails(found.answer) else []
        sys.stdout.write(answer_text(found.job, found.answer, paper, helps, rentals_of(found.job, found.answer, renter)))
        sys.stdout.write(used_text(records, paper))
    return EXIT_DOES_NOT_FIT if fails(found.answer) else EXIT_OK


def remedies_for(worksheet: Worksheet) -> list[Remedy]:
    """Single changes that would make it fit, by the formulas, best first."""
    from fullstep.api.answer import size  # noqa: PLC0415
    from fullstep.plan.remedies import remedies  # noqa: PLC0415 (only what does not fit needs the search)
    from fullstep.plan.trial import Workbench  # noqa: PLC0415

    return remedies(Workbench(worksheet, size))


def fails(answer: Answer) -> bool:
    """It does not fit, on the GPU or on the host."""
    return "does_not_fit" in (answer.memory.verdict, answer.host.verdict)


def _stream(arguments: argparse.Namespace) -> int:
    """Exit code 0 where every line got its answer, be it its faults."""
    if states_anything(arguments) or arguments.exposed_share is not None or arguments.evidence is not None:
        remedy = "Put the keys into each line, or use --json for files and flags."
        found = "files, keys, --exposed-share or --evidence beside it"
        raise InputError(Fault("--jsonl", found, "worksheets on standard input alone", remedy))
    if sys.stdin is None:
        raise InputError(Fault("standard input", "closed", "worksheets (JSON), a line each"))
    from fullstep.api.answer import estimate  # noqa: PLC0415
    from fullstep.cli.stream import answer_lines  # noqa: PLC0415
    from fullstep.job import worksheet_from_json  # noqa: PLC0415

    tally = answer_lines(sys.stdin.buffer, sys.stdout, lambda text, name: estimate(worksheet_from_json(text, name)))
    return EXIT_OURS if tally.ours else EXIT_OK
