"""The worksheet of a command: a file, flags, or flags over a file."""
from __future__ import annotations

import argparse
import json
from pathlib import Path

from fullstep.job import Worksheet, worksheet_from_mapping


def add_worksheet_arguments(parser: argparse.ArgumentParser, several: bool = False) -> None:
    parser.add_argument("worksheets" if several else "worksheet", nargs="*" if several else "?")


def worksheet_from(arguments):
    p = arguments.worksheet
    return worksheet_from_mapping(json.loads(Path(p).read_text()), p)


def worksheets_from(arguments):
    return [worksheet_from_mapping(json.loads(Path(p).read_text()), p) for p in arguments.worksheets]
