"""Bytes of a data file, packed by gzip or not, a line or a piece at a time."""

from __future__ import annotations

import gzip
import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO, cast

from fullstep.datasets.table import LARGEST_ROW_BYTES, Table
from fullstep.errors import Fault, InputError

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_ALLOWED = "a data file or a folder written by save_to_disk"


def file_kind(path: str) -> str:
    """``file`` or ``folder``.

    Raises:
        InputError: it is not there, or a pipe, device or socket: only what has an end and can be read again is a data set
    """
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - also of a name that no file has
    except FileNotFoundError:
        raise InputError(Fault(path, "there is no such file", _ALLOWED)) from None
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None
    if stat.S_ISDIR(mode):
        return "folder"
    if stat.S_ISREG(mode):
        return "file"
    raise InputError(Fault(path, "a pipe, device or socket", _ALLOWED, "Write it to a file first; .gz is read as it is."))


def unreadable(name: str, error: Exception) -> InputError:
    """The fault of a file that the system or its format does not let one read."""
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return InputError(Fault(name, f"cannot be read: {str(reason).strip()[:200]}", "a whole file that you may read"))


@contextmanager
def opened(table: Table) -> Iterator[tuple[BinaryIO, IO[bytes]]]:
    """The bytes of its file, and the file on disk under them, which says how far one is.

    Raises:
        InputError: it cannot be opened, or while reading: it is cut off or damaged
    """
    try:
        with Path(table.name).open("rb") as disk:
            if table.name.lower().endswith(".gz"):
                with gzip.open(disk) as unpacked:
                    yield cast(BinaryIO, unpacked), disk
            else:
                yield disk, disk
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise unreadable(table.name, error) from None
    except (OSError, ValueError) as error:  # a name with a zero byte is a ValueError
        raise unreadable(table.name, error) from None


def lines_of(table: Table) -> Iterator[tuple[int, bytes]]:
    """Lines with their numbers, empty ones left out; ``share_read`` follows.

    Raises:
        InputError: the file cannot be read, or a line is longer than any row
    """
    with opened(table) as (source, disk):
        size = max(1, os.fstat(disk.fileno()).st_size)
        number = 0
        while line := source.readline(LARGEST_ROW_BYTES + 1):
            number += 1
            if len(line) > LARGEST_ROW_BYTES:
                raise too_long(table.where(number))
            if number == 1:
                line = line.removeprefix(BYTE_ORDER_MARK)
            if number % 1000 == 1:
                table.share_read = disk.tell() / size
            if not line.isspace():
                yield number, line


def too_long(where: str) -> InputError:
    """The fault of what is longer than any row."""
    found = f"a row of more than {LARGEST_ROW_BYTES // 2**20} MiB"
    return InputError(Fault(where, found, "a row (JSON object) a line, or an array of them", "Is the suffix of the file right?"))
