"""Several options of a plan traced, two at a time, each in a process of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from fullstep.api.traced import Progress, Subject, in_words, trace_subject
from fullstep.errors import InputError, LabError
from fullstep.lab.libraries import require_libraries
from fullstep.ledger import Answer
from fullstep.plan.confirm import untraced
from fullstep.plan.trial import Trial

WORKERS = 2
"""traces at a time: each takes a processor and up to 1.5 GB"""


class _StoppedError(Exception):
    """The search was stopped while this was traced."""


def trace_trials(trials: Sequence[Trial], progress: Progress | None = None) -> list[Answer]:
    """An answer for each, traced; what cannot be traced keeps its answer and says why.

    Args:
        trials: sized by the formulas
        progress: is told which are at which stage
    """
    board = _Board(len(trials), progress)
    with ThreadPoolExecutor(WORKERS) as pool:
        found = [pool.submit(_answered, trial, board, number) for number, trial in enumerate(trials, 1)]
        try:
            return [future.result() for future in found]
        except BaseException:
            board.stop()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _answered(trial: Trial, board: _Board, number: int) -> Answer:
    try:
        return trace_subject(Subject(trial.job, trial.job, ""), progress=board.teller(number))
    except InputError as error:
        why = in_words(error)
    except LabError as error:
        why = error.what
    finally:
        board.leave(number)
    return replace(trial.answer, warnings=untraced(trial.answer, why))


class _Board:
    """The stages of all traces that are under way, as one line."""

    def __init__(self, count: int, progress: Progress | None) -> None:
        self._count, self._progress = count, progress
        self._stages: dict[int, str] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Ends each trace at its next sign of life."""
        self._stopped.set()

    def leave(self, number: int) -> None:
        """The trace of one option has ended."""
        with self._lock:
            self._stages.pop(number, None)

    def teller(self, number: int) -> Callable[[str], None]:
        """What the trace of one option tells its stages to."""

        def tell(stage: str) -> None:
            if self._stopped.is_set():
                raise _StoppedError
            with self._lock:
                self._stages[number] = stage
                line = ", ".join(f"option {place} of {self._count}: {at}" for place, at in sorted(self._stages.items()))
            if self._progress is not None:
                self._progress(f"tracing {line}")

        return tell


__all__ = ["WORKERS", "require_libraries", "trace_trials"]
