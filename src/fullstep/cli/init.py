"""A blank worksheet with every key explained, for standard output or a new file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fullstep.cli import EXIT_OK
from fullstep.errors import Fault, InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("file", nargs="?", default="-", help="a new .toml file; - (the default): standard output")


def run(arguments: argparse.Namespace) -> int:
    """Writes it. A file that is there already stays as it is."""
    from fullstep.job import blank_worksheet  # noqa: PLC0415 (after the arguments are known to be good)

    text = blank_worksheet()
    if arguments.file == "-":
        sys.stdout.write(text)
        return EXIT_OK
    suffix = Path(arguments.file).suffix
    if suffix.lower() != ".toml":
        found = f'the suffix "{suffix}"' if suffix else "no suffix"
        remedy = "The blank worksheet is TOML; a worksheet that you write yourself may also be YAML or JSON."
        raise InputError(Fault(arguments.file, found, "a file that ends in .toml", remedy))
    try:
        with Path(arguments.file).open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InputError(Fault(arguments.file, "a file is there already", "a new file", "It was left as it is.")) from None
    except OSError as error:
        raise InputError(Fault(arguments.file, f"cannot be written: {error.strerror}", "a file in a folder that is there")) from None
    return EXIT_OK
