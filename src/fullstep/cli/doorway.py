"""What happens at the door when something goes wrong inside: a message, an exit code, never a traceback by surprise."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from fullstep.cli import EXIT_INPUT, EXIT_OURS
from fullstep.errors import InputError

_STOPPED = 128
_BROKEN_PIPE = 13
"""the number of SIGPIPE, which not every system has"""


def guarded(action: Callable[[], int]) -> int:
    """Runs it; errors of the input become their faults on standard error, unexpected ones a line to report."""
    with _ends_by_signal():
        try:
            code = action()
            sys.stdout.flush()
        except InputError as error:
            from fullstep.report.faults import faults_text  # noqa: PLC0415 (only where something is wrong)

            _complain(faults_text(error))
            return EXIT_INPUT
        except KeyboardInterrupt:
            return _STOPPED + signal.SIGINT
        except BrokenPipeError:
            _silence_output()
            return _STOPPED + _BROKEN_PIPE
        except SystemExit as stop:  # argparse, or a signal
            return stop.code if isinstance(stop.code, int) else EXIT_OURS
        except Exception as error:
            if os.environ.get("FULLSTEP_DEBUG"):
                raise
            _complain(_report_line(error))
            return EXIT_OURS
        return code


@contextmanager
def _ends_by_signal() -> Iterator[None]:
    """SIGTERM ends the command by way of its cleanups; only the main thread may say so."""

    def stop(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(_STOPPED + number)

    try:
        before = signal.signal(signal.SIGTERM, stop)
    except ValueError:
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _complain(text: str) -> None:
    try:
        sys.stderr.write(text)
    except UnicodeEncodeError:
        sys.stderr.write(text.encode("ascii", "backslashreplace").decode("ascii"))


def _silence_output() -> None:
    """Nobody reads any more: what is still buffered must not raise once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _report_line(error: Exception) -> str:
    where = ""
    trace = error.__traceback__
    while trace is not None:
        where = f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    what = f"{type(error).__name__}: {str(error)[:300]}"
    return (
        f"fullstep: a fault of fullstep itself, not of your worksheet: {what} ({where}).\n"
        "Please report it with the worksheet and the output of the same command under FULLSTEP_DEBUG=1.\n"
    )
