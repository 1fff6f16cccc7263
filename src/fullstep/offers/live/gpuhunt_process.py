"""Runs the worker that asks gpuhunt, and leaves none behind."""

from __future__ import annotations

import subprocess
import sys
import threading
from datetime import date

from fullstep.offers.live.answers import LARGEST_ANSWER_BYTES, FetchError, Parsed
from fullstep.offers.live.gpuhunt_rows import parse_gpuhunt
from fullstep.offers.live.transport import Deadline

_WORKER = "fullstep.offers.live.gpuhunt_worker"


class Workers:
    """The processes that run, so that all of them can be ended together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._closed = False

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._closed = True
            left = list(self._running)
        for process in left:
            process.kill()
            process.wait()

    def ask(self, name: str, provider: str, deadline: Deadline, today: date) -> Parsed:
        """What gpuhunt knows of a provider.

        Args:
            name: gpuhunt's name for it
            provider: ours
            deadline: by which the process has to be done
            today: when it was asked for

        Raises:
            FetchError: nothing came in time, or nothing that can be read
        """
        process = self._start(name, deadline)
        late = threading.Timer(deadline.left_seconds(), process.kill)
        late.daemon = True
        late.start()
        assert process.stdout is not None
        try:
            with process.stdout as output:
                data = output.read(LARGEST_ANSWER_BYTES + 1)
        finally:
            late.cancel()
            self._end(process)
        if not data:
            deadline.left_seconds()
            raise FetchError(f"gpuhunt ended with code {process.returncode} and said nothing")
        return parse_gpuhunt(data, provider, today)

    def _start(self, name: str, deadline: Deadline) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", _WORKER, name, f"{deadline.left_seconds():.3f}"]
        with self._lock:
            if self._closed:
                raise FetchError("stopped")
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
            )
            self._running.add(process)
        return process

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()  # where it has not ended by itself
        process.wait()
        with self._lock:
            self._running.discard(process)
