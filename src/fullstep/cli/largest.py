"""The largest micro-batch, row length, rank or model that fits the worksheet's card, everything else as written."""

from __future__ import annotations

import argparse
import sys

from fullstep.cli import EXIT_DOES_NOT_FIT, EXIT_OK
from fullstep.cli.worksheet_arguments import add_worksheet_arguments, worksheet_from


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    choices = ("micro_batch", "sequence_tokens", "rank", "model")
    parser.add_argument("--vary", required=True, choices=choices, help="what may grow; a model need not be stated to vary it")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    add_worksheet_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Searches and returns the exit code: 3 where not even the smallest fits."""
    from fullstep.api.search import largest  # noqa: PLC0415 (after the arguments are known to be good)
    from fullstep.cli.progress import progress  # noqa: PLC0415

    worksheet = worksheet_from(arguments, _smallest_model() if arguments.vary == "model" else None)
    with progress(f"varying {arguments.vary}"):
        found = largest(worksheet, arguments.vary)
    if arguments.json:
        from fullstep.report.json import dump  # noqa: PLC0415
        from fullstep.report.plan_json import largest_as_dict  # noqa: PLC0415

        sys.stdout.write(dump(largest_as_dict(found)) + "\n")
    else:
        from fullstep.report.largest_text import largest_text  # noqa: PLC0415
        from fullstep.report.paper import Paper  # noqa: PLC0415

        sys.stdout.write(largest_text(found, Paper.of(sys.stdout)))
    return EXIT_DOES_NOT_FIT if found.value is None else EXIT_OK


def _smallest_model() -> str:
    """What stands in where the model is what is asked for."""
    from fullstep.models import bundled_models  # noqa: PLC0415 (only this variation needs them)

    return min(bundled_models(), key=lambda model: model.parameters).name
