"""A temporary folder for one experiment. Those of experiments that were killed, which nobody could take away, go with the next one."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_LOCK = ".here"
"""a file that the experiment holds a lock on: the system opens it where the process is gone, in whichever container that was"""
_AGE_SECONDS = 60.0
"""of what is taken away: a younger one may not have its lock yet"""


@contextmanager
def room_of(experiment: str) -> Iterator[str]:
    """A new folder that is taken away afterwards.

    Args:
        experiment: a word for its name

    Raises:
        OSError: there is no place for one
    """
    prefix = f"fullstep-{experiment}-"
    with suppress(OSError):
        _clear(Path(tempfile.gettempdir()), prefix)
    with tempfile.TemporaryDirectory(prefix=prefix) as folder:
        lock = _lock(Path(folder, _LOCK), os.O_CREAT | os.O_EXCL)
        try:
            yield folder
        finally:
            if lock is not None:
                os.close(lock)


def _clear(place: Path, prefix: str) -> None:
    """Folders of this user whose experiment is gone."""
    for entry in os.scandir(place):
        with suppress(OSError):
            if not entry.name.startswith(prefix) or not entry.is_dir(follow_symlinks=False) or entry.stat().st_uid != os.getuid():
                continue
            path = Path(entry.path, _LOCK)
            if not stat.S_ISREG(path.lstat().st_mode) or time.time() - path.lstat().st_mtime < _AGE_SECONDS:
                continue
            lock = _lock(path)
            if lock is not None:
                shutil.rmtree(entry.path, ignore_errors=True)
                os.close(lock)


def _lock(path: Path, more: int = 0) -> int | None:
    """The open file; None: somebody else holds it, or the system has no such locks."""
    try:
        import fcntl  # noqa: PLC0415 - not every system has it
    except ImportError:
        return None
    handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | more, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle
