"""Where a worker writes a snapshot: beside the file that is wanted, which it becomes when all went well."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fullstep.errors import Fault, InputError


@contextmanager
def written_when_done(target: Path | None) -> Iterator[str | None]:
    """The path to write to. What is there takes the target's place at the end, and is gone where an exception ends it.

    Args:
        target: the file that is wanted; None: none, and so is the path

    Raises:
        InputError: nothing can be written there.
    """
    if target is None:
        yield None
        return
    target = Path(os.path.realpath(target))
    if target.exists() and not target.is_file() and not target.is_dir():  # a pipe or device has no other name
        yield str(target)
        return
    try:
        folder = Path(tempfile.mkdtemp(prefix=".fullstep-", dir=target.parent))
    except OSError as error:
        raise _not_written(target, error) from None
    try:
        part = folder / "snapshot"
        yield str(part)
        try:
            part.replace(target)
        except OSError as error:
            raise _not_written(target, error) from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _not_written(target: Path, error: OSError) -> InputError:
    found = f'"{target}" cannot be written: {error.strerror or error}'
    return InputError(Fault("--snapshot", found, "a file in a folder that can be written"))
