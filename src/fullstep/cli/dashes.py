"""A command of one's own whose -- was forgotten: it would be taken for a worksheet, and its options for ours."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from fullstep.errors import Fault, InputError

_LAUNCHERS = re.compile(r"python[\d.]*|torchrun|accelerate|deepspeed|axolotl|tune|llamafactory-cli|trl|uv|poetry|srun|mpirun|bash|sh|env")
_SCRIPTS = {".py": ["python"], ".sh": ["sh"]}
_LONGEST = 200


def require_dashes(name: str, words: Sequence[str], parser: argparse.ArgumentParser) -> None:
    """Returns where no word is a program's.

    Args:
        name: of our command
        words: after it
        parser: whose options those words may be

    Raises:
        InputError: one is, with the command line that is meant
    """
    with_value = {flag for action in parser._actions if action.nargs != 0 for flag in action.option_strings}
    for index, word in enumerate(words):
        if word.startswith("-") or (index and words[index - 1] in with_value):
            continue
        path = Path(word)
        if _LAUNCHERS.fullmatch(path.name) or path.suffix in _SCRIPTS:
            meant = ["fullstep", name, *words[:index], "--", *_SCRIPTS.get(path.suffix, []), *words[index:]]
            remedy = f"Did you mean: {shlex.join(meant)[:_LONGEST]}"
            raise InputError(Fault("command line", f'"{word[:80]}" is no worksheet', "a worksheet, or a command after --", remedy))
        return  # the worksheet: what follows is for the parser to judge
