"""One worksheet traced: one step of the real model class, with the formulas' account beside it where they know the model."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from fullstep.api.answer import assemble
from fullstep.api.timing import with_timing
from fullstep.calibration.trace import outrank_with_trace
from fullstep.errors import Fault, InputError, UnsupportedError
from fullstep.evidence import Assumption
from fullstep.job import Job, Settings, Worksheet, complete, settings_of
from fullstep.lab.trace import trace_step
from fullstep.ledger import Answer, Timing
from fullstep.models import model_config
from fullstep.physics import estimate_memory

Progress = Callable[[str], None]
"""told which stage a trace has come to, in a few words"""


_UNKNOWN = "the formulas do not cover this model"


class Subject(NamedTuple):
    """A worksheet to be traced."""

    settings: Settings
    job: Job | None
    """None: the formulas do not cover it, a trace may"""
    uncovered: str
    """why not, for people"""


def trace(
    worksheet: Worksheet, *, full_depth: bool = False, snapshot: Path | None = None, progress: Progress | None = None, cache: bool = True
) -> Answer:
    """The answer to one worksheet by a trace: one full step of the real model class on tensors without data, in a process of its own.

    Args:
        worksheet: what is wanted
        full_depth: trace every block, where otherwise equal blocks are traced a few times and repeated
        snapshot: a file to write that PyTorch's memory viewer opens; one that is there is overwritten
        progress: is told the stages as they come
        cache: take the trace from the cache where it was made before, and keep it there

    Raises:
        InputError: the worksheet is at fault, torch and its libraries are not installed, or (UnsupportedError) it cannot be traced
        LabError: the process that traces died or took too long
    """
    return trace_subject(subject_of(worksheet), full_depth=full_depth, snapshot=snapshot, progress=progress, cache=cache)


def subject_of(worksheet: Worksheet) -> Subject:
    """The worksheet completed: for the formulas as well, where they cover it.

    Raises:
        InputError: the worksheet is at fault
    """
    settings = settings_of(worksheet)
    try:
        return Subject(settings, complete(worksheet), "")
    except UnsupportedError as error:
        return Subject(settings, None, in_words(error))


def in_words(error: InputError) -> str:
    """What an error says of a worksheet that is known to the reader: the keys without their file and line."""
    return "; ".join(f"{fault.where.rpartition(': ')[2]}: {fault.found}" for fault in error.faults)


def trace_subject(
    subject: Subject, *, full_depth: bool = False, snapshot: Path | None = None, progress: Progress | None = None, cache: bool = True
) -> Answer:
    """The same for a worksheet that is completed already. Raises as :func:`trace` does."""
    if snapshot is not None and (fault := snapshot_fault(snapshot)) is not None:
        raise InputError(fault)
    config, name = model_config(subject.settings.worksheet.section("model"))
    seen = trace_step(subject.settings, config, name, full_depth=full_depth, snapshot=snapshot, progress=progress, cache=cache)
    estimated = None if subject.job is None else estimate_memory(subject.job)
    settings = subject.job or subject.settings
    answer = assemble(settings, outrank_with_trace(seen, settings, estimated), estimated, seen)
    if subject.job is not None:
        return with_timing(subject.job, answer)
    answer = replace(answer, timing=Timing(None, None, None, tuple((part, _UNKNOWN) for part in ("step", "traffic", "run", "checkpoint"))))
    return replace(answer, assumptions=(*answer.assumptions, *_unanswered(subject.uncovered)))


def snapshot_fault(path: Path) -> Fault | None:
    """Why nothing can be written there; None: it can. Found before a trace begins, which may take a while."""
    try:
        return _snapshot_fault(path)
    except (OSError, ValueError) as error:  # a name that no system takes
        return Fault("--snapshot", f"cannot be written: {getattr(error, 'strerror', None) or error}", "a file in a folder that is there")


def _snapshot_fault(path: Path) -> Fault | None:
    with suppress(FileNotFoundError, NotADirectoryError):
        path.stat()  # says what is wrong with a name, where the questions below only say no
    if path.is_fifo():
        return Fault("--snapshot", f'"{path}" is a pipe, which waits for a reader', "a file")
    if path.is_dir():
        return Fault("--snapshot", f'"{path}" is a folder', "a file", f"For example {path / 'snapshot.pickle'}.")
    if not path.parent.is_dir():
        what = "is no folder" if path.parent.exists() else "is not there"
        return Fault("--snapshot", f'the folder "{path.parent}" {what}', "a file in a folder that is there")
    if not all(os.access(place, os.W_OK) for place in (path.parent, path) if place.exists()):
        return Fault("--snapshot", f'"{path}" cannot be written: no permission', "a file in a folder that can be written")
    return None


def _unanswered(uncovered: str) -> list[Assumption]:
    """What stays open where only the trace knows the model."""
    return [
        Assumption("trace.estimated", None, f"the formulas do not cover it: {uncovered}"),
        Assumption("memory.other_peaks", None, "loading, evaluation and saving are sized by the formulas, which do not cover it"),
        Assumption("host", None, "of the host only what is offloaded while training is counted: the formulas do not cover it"),
    ]
