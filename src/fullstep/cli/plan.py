"""The main job: the verdict; layouts of the worksheet's machine, or machines on the market, ranked; what is out and why; what it costs."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from fullstep.cli import EXIT_DOES_NOT_FIT, EXIT_OK
from fullstep.cli.market_arguments import add_market_arguments, renter_from
from fullstep.cli.worksheet_arguments import add_worksheet_arguments, worksheet_from

if TYPE_CHECKING:
    from fullstep.calibration.evidence import Records, UsedOf
    from fullstep.plan.search import Plan


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    parser.add_argument("--trace", action="store_true", help="trace the best options before they are ranked; needs the extra lab")
    parser.add_argument("--evidence", metavar="WHERE", help="records of probes and links: a file, a folder, or a URL that fsspec reaches")
    add_market_arguments(parser)
    add_worksheet_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Searches and returns the exit code: 3 where nothing fits."""
    from fullstep.api.search import plan  # noqa: PLC0415 (after the arguments are known to be good)
    from fullstep.cli.progress import progress  # noqa: PLC0415

    worksheet = worksheet_from(arguments)
    renter = renter_from(arguments)
    records = None
    with progress("searching layouts") as say:
        if arguments.evidence is None:
            found = plan(worksheet, trace=arguments.trace, progress=say, renter=renter)
        else:
            from fullstep.api.evidenced import plan_with_evidence  # noqa: PLC0415 (few ask for it)

            found, records = plan_with_evidence(worksheet, arguments.evidence, trace=arguments.trace, progress=say, renter=renter)
    _say(found, records, arguments.json)
    return EXIT_DOES_NOT_FIT if found.verdict.answer == "nothing_fits" else EXIT_OK


def _say(found: Plan, records: Records[UsedOf] | None, as_json: bool) -> None:
    if as_json:
        from fullstep.report.json import dump, dump_rows  # noqa: PLC0415
        from fullstep.report.plan_json import plan_as_dict  # noqa: PLC0415

        document = plan_as_dict(found)  # the options of a market are hundreds
        if records is not None:
            from fullstep.report.evidence_plan import plan_records_as_dict  # noqa: PLC0415

            document["records"] = plan_records_as_dict(records)
        sys.stdout.write((dump_rows(document, "options") if found.is_market else dump(document)) + "\n")
    else:
        from fullstep.report.paper import Paper  # noqa: PLC0415
        from fullstep.report.plan_text import plan_text  # noqa: PLC0415

        paper = Paper.of(sys.stdout)
        sys.stdout.write(plan_text(found, paper))
        if records is not None:
            from fullstep.report.evidence_plan import plan_records_text  # noqa: PLC0415

            sys.stdout.write(plan_records_text(records, paper))
