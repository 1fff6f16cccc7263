"""What front and workers of a drill say to each other: a leg to run, and a record of each rank. Plain JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

Record = dict[str, Any]
"""what one rank saw in one leg; see :mod:`fullstep.lab.drill.worker.run`"""


class Run(NamedTuple):
    """One training, from the beginning or from a checkpoint up to a step."""

    name: str
    last_step: int
    save_at: tuple[int, ...] = ()
    """steps after which it saves"""
    digest_at: tuple[int, ...] = ()
    """steps after which the state is digested"""
    resumes: bool = False
    """it begins with the newest whole checkpoint; else at the beginning"""
    without: tuple[str, ...] = ()
    """what of the checkpoint is left out on purpose"""
    plain: bool = False
    """without dropout and other random numbers, and in float32 where the weights are: other ranks may differ by rounding alone"""
    rounds_state: bool = False
    """what was loaded is rounded to bfloat16, the mildest fault that is known to pass silently"""
    keeps_end: bool = False
    """its last state is saved beside the checkpoints, to compare another one with"""
    compares_end: bool = False
    """its last state is compared with the one that was kept"""


class Leg(NamedTuple):
    """One tree of processes: a training program started by torchrun, on every rank the same."""

    name: str
    worksheet: dict[str, Any]
    config: dict[str, Any]
    """of the model"""
    device: str
    """cpu or cuda"""
    seed: int
    rows: int
    """of the data set"""
    rows_per_step: int
    """over all ranks"""
    folder: str
    """of the checkpoints, path or URL"""
    records: str
    """folder of this machine, for the records of the ranks"""
    mode: str
    keep: int
    runs: tuple[Run, ...]
    waits: bool = False
    """it does not end by itself, but waits to be killed"""
    writes_raw: bool = False
    """it measures what the disk gives as many raw writers"""
    exports: bool = False
    """it writes a full export of the model and reads it back"""
    samples_memory: bool = False


def write_leg(leg: Leg, path: Path) -> None:
    """As one JSON object."""
    path.write_text(json.dumps({**leg._asdict(), "runs": [run._asdict() for run in leg.runs]}), encoding="utf-8")


def read_leg(path: Path) -> Leg:
    """The leg that was written there.

    >>> import tempfile
    >>> run = Run("resumed", 7, digest_at=(7,), resumes=True)
    >>> leg = Leg("resumed", {}, {}, "cpu", 1, 64, 4, "to", "records", "sync", 2, (run,))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_leg(leg, Path(folder, "leg.json"))
    ...     read_leg(Path(folder, "leg.json")) == leg
    True
    """
    table: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return Leg(**{**table, "runs": tuple(_run(run) for run in table["runs"])})


def _run(table: dict[str, Any]) -> Run:
    keys: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in table.items()}
    return Run(**keys)


def record_path(records: str | Path, rank: int) -> Path:
    """Where a rank leaves its record."""
    return Path(records, f"rank{rank}.json")
