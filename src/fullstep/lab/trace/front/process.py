"""The worker's process: started in a group of its own, listened to line by line, and never left behind."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from tempfile import TemporaryFile
from typing import IO, Any

from fullstep.errors import LabError, printable
from fullstep.errors.stops import ends_by_signal

WORKER: Sequence[str] = ("-P", "-m", "fullstep.lab.trace.worker")
"""arguments of Python; ``-P``: nothing in the current folder stands in for a library"""
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "TOKENIZERS_PARALLELISM": "false",
    "CUDA_VISIBLE_DEVICES": "", "PYTHONOPTIMIZE": "",
}  # fmt: skip
REPORT = "Please report this with the worksheet."
_ANSWERS = ("trace", "faults", "unsupported", "crash")
_LONGEST_LINE_BYTES = 2**26
_LOOK_SECONDS = 0.2
"""between two looks whether the process is still there"""
_END_SECONDS = 5.0
"""for a process that has closed its output to end"""
_TAIL_BYTES, _TAIL_LINES, _TAIL_WIDTH = 2**14, 8, 240
_REMEDIES: dict[int, str] = {
    signal.SIGKILL: "The system kills what takes more memory than there is: close other programs, or trace on a machine with more memory.",
    signal.SIGTERM: "Something else on this machine stopped it: run the command again.",
    signal.SIGINT: "Something else on this machine stopped it: run the command again.",
}


class Worker:
    """One worker from its request to its answer."""

    def __init__(self, process: subprocess.Popen[bytes], complaints: IO[bytes], progress: Callable[[str], None] | None) -> None:
        self._process = process
        self._complaints = complaints
        self._progress = progress
        self._stage = "starting"
        """the last one that it reported"""

    def answer(self, limit_seconds: float) -> dict[str, Any]:
        """Listens until the answer: a table with the one key ``trace``, ``faults`` or ``unsupported``, or with ``crash``.

        Raises:
            LabError: it died, made no sense or took longer than ``limit_seconds``.
        """
        for line in self._lines(limit_seconds):
            message = self._message(line)
            if "progress" not in message:
                return message
            self._stage = printable(str(message["progress"])[:_TAIL_WIDTH])
            self._tell()
        raise self._died()

    def _tell(self) -> None:
        """Tells the stage, again and again while it lasts, so that whoever listens can stop it at any time."""
        if self._progress is not None:
            self._progress(self._stage)

    def kill(self) -> None:
        """Ends it and all that it started; nothing happens where they have ended."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def error(self, what: str, remedy: str, details: Sequence[str] = ()) -> LabError:
        """What happened to the worker, at which stage, and the last that it wrote to standard error."""
        return LabError(
            f'the trace\'s worker process {what}; last stage: "{self._stage}"', remedy=remedy, details=(*details, *self._tail())
        )

    def _lines(self, limit_seconds: float) -> Iterator[bytes]:
        """Whole lines as they come, until the end of output or of the process."""
        pipe = self._process.stdout
        assert pipe is not None
        deadline = time.monotonic() + limit_seconds
        rest = bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            ended = False
            while True:
                left = deadline - time.monotonic()
                if left <= 0:
                    remedy = "Trace a smaller model or fewer blocks (without --full-depth), or on a faster machine."
                    raise self.error(f"took longer than {limit_seconds:g} s and was stopped", remedy)
                if not selector.select(0 if ended else min(left, _LOOK_SECONDS)):
                    self._tell()
                    if ended:  # what it started may still hold the pipe open
                        break
                    ended = self._process.poll() is not None
                    continue
                chunk = os.read(pipe.fileno(), 2**16)
                if not chunk:
                    break
                *whole, last = chunk.split(b"\n")
                for line in whole:
                    yield bytes(rest) + line
                    rest.clear()
                rest += last
                if len(rest) > _LONGEST_LINE_BYTES:
                    raise self.error("answered with a line without an end", REPORT)
        if rest.endswith(b"}"):  # otherwise it died in the middle of a line
            yield bytes(rest)

    def _message(self, line: bytes) -> dict[str, Any]:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if isinstance(message, dict):
            if message.keys() == {"progress"}:
                return message
            if len(message.keys() & set(_ANSWERS)) == 1:
                return message
        shown = line[:80].decode("utf-8", "replace")
        raise self.error(f"answered with something that is no message: {shown!r}", REPORT)

    def _died(self) -> LabError:
        try:
            status = self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            return self.error("closed its output without an answer", REPORT)
        if status >= 0:
            return self.error(f"ended without an answer (exit code {status})", REPORT)
        return self.error(f"was killed by {_signal_name(-status)}", _REMEDIES.get(-status, REPORT))

    def _tail(self) -> list[str]:
        """The last lines on its standard error."""
        with suppress(OSError):
            size = os.fstat(self._complaints.fileno()).st_size
            self._complaints.seek(max(0, size - _TAIL_BYTES))
            text = self._complaints.read(_TAIL_BYTES).decode("utf-8", "replace")
            return [line.rstrip()[:_TAIL_WIDTH] for line in text.splitlines() if line.strip()][-_TAIL_LINES:]
        return []


@contextmanager
def started(request: str, progress: Callable[[str], None] | None = None) -> Iterator[Worker]:
    """A worker with the request on its standard input; it and all that it started are gone afterwards, whatever happens.

    Raises:
        LabError: no process can be started.
    """
    with ends_by_signal(), ExitStack() as stack:
        try:
            complaints = stack.enter_context(TemporaryFile())
            asked = stack.enter_context(TemporaryFile())  # not a pipe, which would fill up before a worker that never reads
            asked.write(request.encode("utf-8"))
            asked.seek(0)
            process = subprocess.Popen(
                [sys.executable, *WORKER],
                stdin=asked, stdout=subprocess.PIPE, stderr=complaints, env={**os.environ, **ENVIRONMENT}, process_group=0,
            )  # fmt: skip
        except OSError as error:
            what = f"the trace's worker process cannot be started: {error.strerror or error}"
            raise LabError(what, remedy="It needs a temporary folder that can be written, and room for one more process.") from None
        worker = Worker(process, complaints, progress)
        try:
            yield worker
        finally:
            worker.kill()


def _signal_name(number: int) -> str:
    """A signal in words.

    >>> _signal_name(9), _signal_name(63)
    ('SIGKILL', 'signal 63')
    """
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
