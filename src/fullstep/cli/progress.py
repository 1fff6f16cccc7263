"""A sign of life on standard error for what takes longer than a second: a line that counts, in a log a line every half minute."""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fullstep.errors import printable

_PATIENCE_SECONDS = 1.0
_LOG_SECONDS = 30.0


@contextmanager
def progress(what: str) -> Iterator[Callable[[str], None]]:
    """Shows ``what`` and the seconds it has taken, from the first second on; wipes it at the end.

    Where nobody watches a terminal, a line is written every half minute, so that a log tells a long trace from a hanging one.
    What it yields may be told the stage that the work has come to, which is shown as well.
    """
    line = _Line(what)
    thread = threading.Thread(target=line.tick if sys.stderr.isatty() else line.log, daemon=True)
    thread.start()
    try:
        yield line.say
    finally:
        line.done.set()
        thread.join()


class _Line:
    """One line of a terminal that is written over again and again."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._stage = ""
        self.done = threading.Event()

    def say(self, stage: str) -> None:
        """Shows this stage from the next second on."""
        self._stage = f": {printable(stage)}" if stage else ""

    def log(self) -> None:
        """Writes a line of its own every half minute until it is done."""
        seconds = 0.0
        while not self.done.wait(_LOG_SECONDS):
            seconds += _LOG_SECONDS
            sys.stderr.write(f"fullstep: {self._what}{self._stage} ... {seconds:.0f} s\n")
            sys.stderr.flush()

    def tick(self) -> None:
        """Writes the line each second until it is done."""
        seconds = 0
        while not self.done.wait(_PATIENCE_SECONDS):
            seconds += 1
            passed = f" ... {seconds} s"
            room = shutil.get_terminal_size().columns - len(passed) - 1
            sys.stderr.write(f"\r\x1b[K{(self._what + self._stage)[: max(room, 0)]}{passed}")
            sys.stderr.flush()
        if seconds:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
