"""Host memory of this process and all that it started, while something goes on."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SECONDS = 0.1
"""between two looks; a look takes longer the more memory there is"""


class Peak:
    """What was there at first, at most and at last [bytes]; None where the system does not say."""

    def __init__(self) -> None:
        self.before_bytes = self.most_bytes = self.after_bytes = held_bytes()


@contextmanager
def watched_memory() -> Iterator[Peak]:
    """Looks again and again until the end."""
    peak, done = Peak(), threading.Event()

    def look() -> None:
        while not done.wait(_SECONDS):
            now = held_bytes()
            if now is not None and peak.most_bytes is not None:
                peak.most_bytes = max(peak.most_bytes, now)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()
        peak.after_bytes = held_bytes()
        if peak.after_bytes is not None and peak.most_bytes is not None:
            peak.most_bytes = max(peak.most_bytes, peak.after_bytes)


def held_bytes() -> int | None:
    """Memory of this process and its descendants, shared pages divided among those that share them (PSS); None: the system does not say."""
    sizes = [_proportional_bytes(process) for process in family(os.getpid())]
    known = [size for size in sizes if size is not None]
    return sum(known) if known else None


def family(process: int) -> list[int]:
    """A process and all that descend from it."""
    found = [process]
    for parent in found:
        for path in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                found += map(int, path.read_text().split())
            except OSError:
                continue
    return found


def _proportional_bytes(process: int) -> int | None:
    try:
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return None
