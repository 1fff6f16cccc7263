"""What happens at the door when something goes wrong inside: a message, an exit code, never a traceback by surprise."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from fullstep.cli import EXIT_INPUT, EXIT_LAB, EXIT_OURS
from fullstep.cli.streams import silence, stand_in_for_closed_streams
from fullstep.errors import InputError, LabError, printable
from fullstep.errors.stops import BY_SIGNAL, ends_by_signal

_BROKEN_PIPE = 13
"""the number of SIGPIPE, which not every system has"""


def guarded(action: Callable[[], int]) -> int:
    """Runs it; errors of the input become their faults on standard error, unexpected ones a line to report."""
    stand_in_for_closed_streams()
    with ends_by_signal():
        try:
            code = _code_of(action)
            sys.stdout.flush()
        except InputError as error:
            from fullstep.report.faults import faults_text  # noqa: PLC0415 (only where something is wrong)

            _complain(faults_text(error))
            return EXIT_INPUT
        except LabError as error:
            _complain(f"fullstep: {error}\n")
            return EXIT_LAB
        except KeyboardInterrupt:
            return BY_SIGNAL + signal.SIGINT
        except BrokenPipeError:
            silence(sys.stdout)
            return BY_SIGNAL + _BROKEN_PIPE
        except Exception as error:
            if isinstance(error, OSError) and error.filename is None:  # files that are read name themselves
                silence(sys.stdout)
                _complain(f"fullstep: the output could not be written: {error.strerror or error}\n")
                return EXIT_OURS
            if os.environ.get("FULLSTEP_DEBUG"):
                raise
            _complain(_report_line(error))
            return EXIT_OURS
        return code


def _code_of(action: Callable[[], int]) -> int:
    try:
        return action()
    except SystemExit as stop:  # argparse, or a signal
        return stop.code if isinstance(stop.code, int) else EXIT_OURS


def _complain(text: str) -> None:
    """On standard error, where that can be written; the exit code says it anyway."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except UnicodeEncodeError:
        _complain(text.encode("ascii", "backslashreplace").decode("ascii"))
    except OSError:
        silence(sys.stderr)


def _report_line(error: Exception) -> str:
    where = ""
    trace = error.__traceback__
    while trace is not None:
        where = f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    what = printable(f"{type(error).__name__}: {str(error)[:300]}")
    return (
        f"fullstep: a fault of fullstep itself, not of your worksheet: {what} ({where}).\n"
        "Please report it with the worksheet and the output of the same command under FULLSTEP_DEBUG=1.\n"
    )
