"""A data set on disk: the lengths of its rows, what padding and packing make of them, and the worksheet keys that follow."""

from __future__ import annotations

import argparse
import sys
from argparse import ArgumentTypeError

from fullstep.cli import EXIT_OK

_MOST = 10**8
"""as in a worksheet"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.usage = "fullstep data FILE ... [options]"
    parser.add_argument("files", nargs="+", metavar="FILE", help="JSON Lines, JSON, CSV, Parquet, Arrow, or a folder of save_to_disk")
    parser.add_argument("--tokenizer", metavar="PATH", help="tokenizer.json or its folder; without it tokens are estimated from bytes")
    parser.add_argument("--column", metavar="NAME", help="what is trained on: text, messages or token ids; else the first known columns")
    parser.add_argument("--sequence-tokens", type=_whole, metavar="N", help="length of a row, as batch.sequence_tokens (2048)")
    parser.add_argument("--micro-batch", type=_whole, metavar="N", help="rows of a padded batch, as batch.micro_batch (1)")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")


def run(arguments: argparse.Namespace) -> int:
    """Reads and returns the exit code."""
    from fullstep.api.data import profile_data  # noqa: PLC0415 (after the arguments are known to be good)
    from fullstep.cli.progress import progress  # noqa: PLC0415

    with progress("reading") as say:
        profile = profile_data(
            arguments.files,
            tokenizer=arguments.tokenizer,
            column=arguments.column,
            sequence_tokens=arguments.sequence_tokens,
            micro_batch=arguments.micro_batch,
            progress=say,
        )
    if arguments.json:
        from fullstep.report.data_json import profile_as_dict  # noqa: PLC0415
        from fullstep.report.json import dump  # noqa: PLC0415

        sys.stdout.write(dump(profile_as_dict(profile)) + "\n")
    else:
        from fullstep.report.data_text import data_text  # noqa: PLC0415
        from fullstep.report.paper import Paper  # noqa: PLC0415

        sys.stdout.write(data_text(profile, Paper.of(sys.stdout)))
    return EXIT_OK


def _whole(text: str) -> int:
    try:
        number = int(text.replace(",", "").replace("_", "")) if len(text) < 20 else 0
    except ValueError:
        number = 0
    if not 1 <= number <= _MOST:
        raise ArgumentTypeError(f"{text[:40]!r} is no whole number from 1 to {_MOST:,}")
    return number
