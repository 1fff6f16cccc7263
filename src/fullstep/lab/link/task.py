"""What front and workers of a link say to each other: what to time, and a record of each rank. Plain JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

Record = dict[str, Any]
"""what one rank saw; see :mod:`fullstep.lab.link.worker.session`"""
WORD_BYTES = 4
"""of a float32: what is sent and added up"""


class Task(NamedTuple):
    """The same on every rank."""

    device: str
    """cpu or cuda"""
    collectives: tuple[str, ...]
    sizes_bytes: tuple[int, ...]
    """each a whole number of words for every rank"""
    iterations: int
    """timed calls of each size"""
    warm_up: int
    """calls before them that are not timed"""
    records: str
    """folder for the records of the ranks"""


def write_task(task: Task, path: Path) -> None:
    """As one JSON object."""
    path.write_text(json.dumps(task._asdict()), encoding="utf-8")


def read_task(path: Path) -> Task:
    """The task that was written there.

    >>> import tempfile
    >>> task = Task("cpu", ("all_reduce",), (4096, 8192), 20, 5, "records")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_task(task, Path(folder, "task.json"))
    ...     read_task(Path(folder, "task.json")) == task
    True
    """
    table: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    keys: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in table.items()}
    return Task(**keys)


def record_path(records: str | Path, rank: int) -> Path:
    """Where a rank leaves its record."""
    return Path(records, f"rank{rank}.json")
