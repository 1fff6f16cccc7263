"""What a program prints, heard line by line while it runs."""

from __future__ import annotations

import os
import re
import selectors
import subprocess
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from math import inf

from fullstep.errors import Fault, InputError
from fullstep.lab.ranks.processes import Processes, started

_LAST_WORDS_SECONDS = 2.0
"""to read what a program printed before it ended"""
_LOOK_SECONDS = 0.2
_LONGEST_LINE_BYTES = 2**20


@contextmanager
def command_started(command: Sequence[str], environment: Mapping[str, str]) -> Iterator[Processes]:
    """Somebody's command, whose standard error comes with its output; all that it started is gone afterwards.

    Raises:
        InputError: there is no such program
        LabError: something of it cannot be ended
    """
    with ExitStack() as stack:
        try:
            family = stack.enter_context(started(command, environment, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT))
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise InputError(Fault("command after --", f'"{command[0][:80]}": {reason}', "a program and its arguments")) from None
        yield family


class Output:
    """The output of a program, in lines, those that a progress bar writes over among them.

    Args:
        family: the program, whose output is a pipe
    """

    def __init__(self, family: Processes) -> None:
        assert family.first.stdout is not None
        self._family, self._pipe = family, family.first.stdout
        self._ready: deque[bytes] = deque()
        self._rest: list[bytes] = []
        """pieces of a line that has no end yet"""
        self._rest_bytes = 0
        self._heard, self._noted = time.monotonic(), -inf

    @property
    def silent_seconds(self) -> float:
        """Since something came last, if only a part of a line."""
        return time.monotonic() - self._heard

    def lines(self) -> Iterator[str | None]:
        """Until the output ends; None for each look at which no line was there."""
        ended_at: float | None = None
        with selectors.DefaultSelector() as selector:
            selector.register(self._pipe, selectors.EVENT_READ)
            while True:
                if self._family.first.poll() is not None:
                    ended_at = ended_at or time.monotonic()
                    if time.monotonic() - ended_at > _LAST_WORDS_SECONDS:  # what it left behind may print for ever
                        return
                yield from self.left()
                yield None
                self._take_note()
                if not selector.select(_LOOK_SECONDS):
                    if self._family.first.poll() is not None:  # what it left behind may still hold the pipe open
                        return
                    continue
                if not (chunk := os.read(self._pipe.fileno(), 2**16)):
                    return
                self._heard = time.monotonic()
                self._take(chunk)

    def _take_note(self) -> None:
        """Now and then: a look at all processes takes longer than a chunk does to come, and the program waits for whoever reads."""
        if time.monotonic() - self._noted > _LOOK_SECONDS:
            self._family.take_note()
            self._noted = time.monotonic()

    def take_rest(self, ended: bool) -> None:
        """Takes what was printed before the end and not read yet: a training goes on until the kill reaches it.

        Args:
            ended: by itself, so that the last line is whole, also without an end
        """
        os.set_blocking(self._pipe.fileno(), False)
        self._take((self._pipe.read() or b"") + (b"\n" if ended else b""))

    def left(self) -> Iterator[str]:
        """Lines that were not told yet."""
        while self._ready:
            if (line := self._ready.popleft()).strip():
                yield line.decode("utf-8", "replace").rstrip()

    def _take(self, chunk: bytes) -> None:
        first, *others = re.split(rb"[\r\n]", chunk)
        self._hold(first)
        if others:
            *whole, last = others
            self._ready.extend((b"".join(self._rest), *whole))
            self._rest, self._rest_bytes = [], 0
            self._hold(last)

    def _hold(self, piece: bytes) -> None:
        """Of a line that never ends the last part is kept."""
        self._rest.append(piece)
        self._rest_bytes += len(piece)
        if self._rest_bytes > 2 * _LONGEST_LINE_BYTES:
            self._rest = [b"".join(self._rest)[-_LONGEST_LINE_BYTES:]]
            self._rest_bytes = _LONGEST_LINE_BYTES
