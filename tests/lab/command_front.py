"""`fullstep probe -- CMD` as a process of its own, with the options that it shares with the probe of a worksheet."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from fullstep.cli.arguments import ArgumentParser
from fullstep.cli.doorway import guarded
from fullstep.cli.probe_command import add_command_arguments, run_command_probe_cli
from fullstep.cli.worksheet_arguments import add_worksheet_arguments


def main(words: Sequence[str]) -> int:
    """Its exit code."""
    parser = ArgumentParser("probe", "")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--silent-seconds", type=float, default=600.0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--evidence", default="")
    add_command_arguments(parser)
    add_worksheet_arguments(parser)

    def run() -> int:
        own = list(words[: words.index("--")]) if "--" in words else list(words)
        arguments = parser.parse_args(own)
        arguments.command = list(words[len(own) + 1 :]) if "--" in words else None
        return run_command_probe_cli(arguments)

    return guarded(run)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
