"""One rank: says that it lives, does its task, and ends when whoever started it is gone. Started by torchrun."""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

Say = Callable[[dict[str, Any]], None]


def run_rank(go: Callable[[Path, int, Say], None], has_failed: Callable[[BaseException], bool] = lambda _: False) -> None:
    """Does the task named on the command line, and ends the process. Whatever libraries print goes to standard error.

    Args:
        go: is given the task's file, the rank and a way to say something to the front; it imports torch, after the first sign of life
        has_failed: whether an error says that what was to be shown does not hold
    """
    messages = os.dup(1)
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    rank = int(os.environ.get("RANK", "0"))

    def say(message: dict[str, Any]) -> None:
        os.write(messages, (json.dumps({"rank": rank, **message}) + "\n").encode())  # one write: ranks share the pipe

    threading.Thread(target=_end_with_front, daemon=True).start()
    say({"process": os.getpid(), "progress": "loading libraries"})
    code = 1
    try:
        go(Path(sys.argv[1]), rank, say)
        code = 0
    except BaseException as error:
        say(_complaint(error, has_failed))
    sys.stderr.flush()
    os._exit(code)  # without the clean-ups of libraries, which may wait for ranks that are gone


def leave_record(path: Path, record: dict[str, Any], say: Say, *, early: bool = False) -> None:
    """Whole or not at all; then the front is told.

    Args:
        path: of the record
        record: of this rank
        say: tells the front
        early: its work is not done, and the other ranks may wait for it
    """
    write_record(path, record)
    say({"done": True, "early": early})


def write_record(path: Path, record: dict[str, Any]) -> None:
    """Whole or not at all."""
    path.with_suffix(".part").write_text(json.dumps(record), encoding="utf-8")
    path.with_suffix(".part").replace(path)


def _end_with_front() -> None:
    """Standard input is a pipe that only the front holds open: it closes when the front is gone, however it went."""
    try:
        while os.read(0, 1):
            pass
    except OSError:
        pass
    os._exit(1)


def _complaint(error: BaseException, has_failed: Callable[[BaseException], bool]) -> dict[str, Any]:
    from fullstep.errors import FullstepError, InputError, UnsupportedError  # noqa: PLC0415 - after the first sign of life

    if isinstance(error, InputError):
        faults = [[fault.where, fault.found, fault.allowed, fault.remedy] for fault in error.faults]
        return {"unsupported" if isinstance(error, UnsupportedError) else "faults": faults}
    if has_failed(error):
        return {"failed": str(error)[:1000]}
    kind = "" if isinstance(error, FullstepError) else f"{type(error).__name__}: "
    return {"crash": f"{kind}{str(error)[:500]}", "traceback": traceback.format_exc(limit=-8)[-4000:]}
