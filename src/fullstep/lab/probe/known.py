"""What a rank of a probe knows so far: a line as it comes, so that nothing takes it away again, neither a kill nor a hang."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fullstep.lab.probe.task import Record, record_path


class Known:
    """A rank's record while it grows, and the file with what it grew by.

    Args:
        path: of the file; it is made, or goes on
    """

    def __init__(self, path: Path) -> None:
        self.record: Record = {}
        self._stream = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0), 0o644)

    def add(self, found: Mapping[str, Any]) -> None:
        """Lists grow, tables get more keys, everything else takes the place of what was there. One line, in one write."""
        _merge(self.record, found)
        with suppress(OSError):  # a full disk: the record is tried once more at the end
            os.write(self._stream, (json.dumps(found) + "\n").encode("ascii"))


def known_path(records: str | Path, rank: int) -> Path:
    """Where a rank leaves what it knows before its work is done."""
    return Path(records, f"rank{rank}.known.jsonl")


def left_by(records: str | Path, rank: int) -> Record | None:
    """Its record; of a rank that has not come to its end what it knew. None: it had not begun."""
    with suppress(OSError, ValueError):
        found: Record = json.loads(record_path(records, rank).read_text(encoding="utf-8"))
        return found
    return _read(known_path(records, rank)) or None


def _read(path: Path) -> Record:
    """All whole lines: a kill may have cut the last one.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     known = Known(Path(folder, "a"))
    ...     known.add({"rank": 0, "steps": [1]})
    ...     known.add({"steps": [2]})
    ...     _ = os.write(known._stream, b'{"steps": [')
    ...     _read(Path(folder, "a"))
    {'rank': 0, 'steps': [1, 2]}
    """
    record: Record = {}
    with suppress(OSError):
        for line in path.read_text(encoding="ascii", errors="replace").splitlines():
            with suppress(ValueError):
                _merge(record, json.loads(line))
    return record


def _merge(record: Record, found: Mapping[str, Any]) -> None:
    for name, value in found.items():
        there = record.get(name)
        if isinstance(value, dict) and isinstance(there, dict):
            there |= value
        elif isinstance(value, list) and isinstance(there, list):
            there += value
        else:
            record[name] = value.copy() if isinstance(value, (dict, list)) else value
