"""The file that a process leaves: a JSON object a line, written as things happen, so that a kill takes nothing of it."""

from __future__ import annotations

import itertools
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from fullstep.probing.cycle import Figures, Step

FOLDER, STEPS, COUNTER = "FULLSTEP_PROBE_FOLDER", "FULLSTEP_PROBE_STEPS", "FULLSTEP_PROBE_COUNTER"
"""environment variables: where lines go; after how many steps to end; the file of a counter of host memory, where it is to be counted"""
SUFFIX = ".steps.jsonl"
_ENOUGH = ".enough"
_EACH, _EVERY = 10, 100
"""memory of so many first steps is told, and that of each so-manieth; besides, each step with a new peak"""


class Lines:
    """Of this process; the file is made with its first line.

    Args:
        folder: for the files of all
        name: without the ending
        head: what its first line says
    """

    def __init__(self, folder: Path, name: str, head: dict[str, Any]) -> None:
        self.path, self._stream = _new_file(folder, name)
        self._peaks: dict[tuple[str, str], int] = {}
        self.write(head)

    def write(self, line: dict[str, Any]) -> None:
        """One line, in one write."""
        os.write(self._stream, (json.dumps(line) + "\n").encode("ascii"))

    def step(self, step: Step, host_peak_bytes: int | None) -> None:
        """A step that is over, its memory where it says something new."""
        line: dict[str, Any] = {
            "step": step.number, "seconds": step.seconds, "data": step.data_seconds, "host": host_peak_bytes, "alike": step.is_alike,
        }  # fmt: skip
        new = [self._is_new(part.phase, part.figures) for part in step.parts]
        if any(new) or step.number <= _EACH or step.number % _EVERY == 0:
            line["memory"] = [list(part) for part in step.parts if part.figures]
        self.write(line)

    def _is_new(self, phase: str, figures: Figures) -> bool:
        """A peak that is higher than all of the phase before."""
        found = False
        for device, numbers in figures.items():
            if device != "cpu" and numbers[0] > self._peaks.get((device, phase), -1):
                self._peaks[device, phase] = numbers[0]
                found = True
        return found or "cpu" in figures

    def close(self) -> None:
        """Nothing more is written."""
        stream, self._stream = self._stream, -1  # whose number another file may have next
        with suppress(OSError):
            os.close(stream)


def _new_file(folder: Path, name: str) -> tuple[Path, int]:
    """A process that runs another program in its place (exec) keeps its number: the other one has a file of its own."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
    for count in itertools.count(1):
        path = folder / (f"{name}{SUFFIX}" if count == 1 else f"{name}-{count}{SUFFIX}")
        with suppress(FileExistsError):
            return path, os.open(path, flags, 0o644)
    raise AssertionError


def enough_path(folder: Path, process: int) -> Path:
    """A file that says that this process has made all steps it was asked for."""
    return folder / f"{process}{_ENOUGH}"


def how_many_have_enough(folder: Path) -> int:
    """Processes."""
    try:
        return sum(name.endswith(_ENOUGH) for name in os.listdir(folder))  # noqa: PTH208 - names are enough
    except OSError:
        return 0
