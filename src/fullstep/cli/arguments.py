"""argparse with short messages: what is wrong and the nearest spelling, instead of a screenful of flags."""

from __future__ import annotations

import argparse
import sys
from difflib import get_close_matches
from typing import Any, NoReturn

from fullstep.errors import Fault, InputError

_LONGEST_MESSAGE = 600


class ArgumentParser(argparse.ArgumentParser):
    """The parser of one command. Flags are never guessed from their beginnings."""

    def __init__(self, command: str, description: str) -> None:
        usage = f"fullstep {command} [WORKSHEET] [options]" + (" | [options] -- CMD" if command in ("drill", "probe") else "")
        super().__init__(prog=f"fullstep {command}", usage=usage, description=description, allow_abbrev=False)

    def print_help(self, file: Any = None) -> None:
        """Writes the help; unlike argparse's own it lets an output that cannot be written be noticed."""
        (sys.stdout if file is None else file).write(self.format_help())

    def error(self, message: str) -> NoReturn:
        """Raises the fault with the nearest flag, where one is meant.

        Raises:
            InputError: always
        """
        shown = message if len(message) <= _LONGEST_MESSAGE else message[:_LONGEST_MESSAGE] + "…"
        if not message.startswith("unrecognized"):
            raise InputError(Fault("command line", shown, ""))
        known = [flag for action in self._actions for flag in action.option_strings]
        wrong = [word.partition("=")[0] for word in message.split() if word.startswith("-")]
        near = [match for word in wrong for match in get_close_matches(word, known, 1, 0.5)]
        hint = f"Did you mean {near[0]}?" if near else f"All of them: {self.prog} --help"
        raise InputError(Fault("command line", shown, "", hint))
