"""Standard streams that are closed, full, or of an encoding that cannot print everything."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from typing import TextIO


class ClosedOutput(io.StringIO):
    """Stands in for a standard output that is not there: whoever writes to it is told."""

    def write(self, _text: str, /) -> int:
        raise OSError(errno.EBADF, "standard output is closed")


def stand_in_for_closed_streams() -> None:
    """Makes both output streams ones that can be written to, whatever the process was started with.

    Python has None for a stream that is closed. Signs that an encoding does not have are written as escapes.
    """
    if sys.stdout is None:
        sys.stdout = ClosedOutput()
    if sys.stderr is None:
        sys.stderr = io.StringIO()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def silence(stream: TextIO) -> None:
    """Nobody can read it any more: what is still buffered must not raise once more at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
