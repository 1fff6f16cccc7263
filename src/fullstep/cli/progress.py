"""A sign of life on standard error for what takes longer than a second, where a person is watching."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_PATIENCE_SECONDS = 1.0


@contextmanager
def progress(what: str) -> Iterator[None]:
    """Shows ``what`` and the seconds it has taken, from the first second on; wipes it at the end."""
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()
    thread = threading.Thread(target=_tick, args=(what, done), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _tick(what: str, done: threading.Event) -> None:
    seconds = 0
    while not done.wait(_PATIENCE_SECONDS):
        seconds += 1
        sys.stderr.write(f"\r{what} ... {seconds} s")
        sys.stderr.flush()
    if seconds:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
