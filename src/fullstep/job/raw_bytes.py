"""The bytes of a worksheet: of a file, a pipe or standard input, never more than a worksheet may have, never waiting for nobody."""

from __future__ import annotations

import os
import re
import select
import stat
import sys
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from fullstep.errors import Fault, InputError

LARGEST_BYTES = 256 * 1024
"""a worksheet with a whole config inside has a few thousand"""
PATIENCE_SECONDS = 2.0
"""how long a named pipe may stay silent"""
_HANDED_OVER = re.compile(r"-|/dev/stdin|/dev/fd/\d+|/proc/(self|\d+)/fd/\d+")


def is_handed_over(path: str | Path) -> bool:
    """What the shell opened for us, in no folder of its own: standard input, a process substitution.

    >>> is_handed_over("-"), is_handed_over("/dev/fd/63"), is_handed_over("job.toml")
    (True, True, False)
    """
    return _HANDED_OVER.fullmatch(str(path)) is not None


def bytes_of_stdin(stdin: BinaryIO | TextIO | None, origin: str) -> bytes:
    """What stands on standard input, or on the stream given instead.

    Raises:
        InputError: it is closed, cannot be read, or holds more than a worksheet may.
    """
    source: Any = stdin if stdin is not None else sys.stdin
    if source is None:
        raise InputError(Fault(origin, "closed", "a worksheet on standard input"))
    source = getattr(source, "buffer", source)
    try:
        raw = source.read(LARGEST_BYTES + 1)
    except OSError as error:
        raise _unreadable(origin, error) from None
    raw = raw.encode("utf-8", "surrogateescape") if isinstance(raw, str) else bytes(raw or b"")
    if len(raw) > LARGEST_BYTES:
        raise too_large(origin, f"more than {LARGEST_BYTES:,} bytes")
    return raw


def bytes_of_file(path: str | Path, origin: str) -> bytes:
    """What stands in a file, or comes out of a pipe into which somebody writes.

    Raises:
        InputError: it is not there, no file, silent, not to be read, or larger than a worksheet may be.
    """
    try:
        state = os.stat(path)  # noqa: PTH116 - also of a name that no file has
        if stat.S_ISDIR(state.st_mode):
            raise InputError(Fault(origin, "a folder", "a worksheet file in TOML, YAML or JSON"))
        if stat.S_ISREG(state.st_mode) and state.st_size > LARGEST_BYTES:
            raise too_large(origin, f"a file of {state.st_size:,} bytes")
        own = is_handed_over(path)
        if stat.S_ISFIFO(state.st_mode) and not own:
            raw = _bytes_of_pipe(path, origin)
        elif stat.S_ISREG(state.st_mode) or own:
            with Path(path).open("rb") as file:
                raw = file.read(LARGEST_BYTES + 1)
        else:
            raise InputError(Fault(origin, "a device or socket", "a worksheet file, or - for standard input"))
    except FileNotFoundError:
        raise InputError(Fault(origin, "there is no such file", "a worksheet file, or - for standard input")) from None
    except (OSError, ValueError) as error:
        raise _unreadable(origin, error) from None
    if len(raw) > LARGEST_BYTES:
        raise too_large(origin, f"more than {LARGEST_BYTES:,} bytes")
    return raw


def _bytes_of_pipe(path: str | Path, origin: str) -> bytes:
    """A named pipe is opened without waiting for its writer; one that nobody writes into for a while is refused."""
    pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    raw = bytearray()
    try:
        while len(raw) <= LARGEST_BYTES:
            ready, _, _ = select.select([pipe], [], [], PATIENCE_SECONDS)
            if not ready:
                found = f"a pipe into which nothing was written for {PATIENCE_SECONDS:.0f} seconds"
                raise InputError(Fault(origin, found, "a worksheet file, or a pipe with a writer"))
            piece = os.read(pipe, LARGEST_BYTES)
            if not piece:
                break
            raw += piece
    finally:
        os.close(pipe)
    return bytes(raw)


def too_large(origin: str, found: str) -> InputError:
    """The fault of a worksheet that is larger than any is."""
    return InputError(Fault(origin, found, f"at most {LARGEST_BYTES // 1024} KiB", "Is this a worksheet?"))


def _unreadable(origin: str, error: OSError | ValueError) -> InputError:
    reason = getattr(error, "strerror", None) or str(error)
    return InputError(Fault(origin, f"cannot be read: {reason[:120]}", "a worksheet file that you may read"))
