"""What front and workers of a probe say to each other: a task, and a record of each rank. Plain JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

Record = dict[str, Any]
"""what one rank saw; see :mod:`fullstep.lab.probe.worker.session`"""


class Task(NamedTuple):
    """A program to run on every rank."""

    worksheet: dict[str, Any]
    config: dict[str, Any]
    """of the model"""
    device: str
    """cpu or cuda"""
    seed: int
    steps: int
    """of the optimizer; the first :data:`COUNTED` are counted and not timed"""
    records: str
    """folder of this machine"""
    weights: str = ""
    """folder or hub id of real weights; empty: random ones"""
    evaluates: bool = False
    saves_to: str = ""
    """folder or URL of a checkpoint that is written once; empty: none"""
    snapshot: str = ""
    """file for the allocator's history; empty: none"""
    limit_bytes: int | None = None
    """of memory that may be allocated, as if the device had no more; None: all of it"""


COUNTED = 2
"""Steps of which every stretch is told: in the first one the optimizer's states come, the second one is steady."""


def write_task(task: Task, path: Path) -> None:
    """As one JSON object."""
    path.write_text(json.dumps(task._asdict()), encoding="utf-8")


def read_task(path: Path) -> Task:
    """The task that was written there.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_task(Task({}, {}, "cpu", 1, 5, "records"), Path(folder, "task.json"))
    ...     read_task(Path(folder, "task.json")).steps
    5
    """
    return Task(**json.loads(path.read_text(encoding="utf-8")))


def record_path(records: str | Path, rank: int) -> Path:
    """Where a rank leaves its record."""
    return Path(records, f"rank{rank}.json")
