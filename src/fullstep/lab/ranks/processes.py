"""A program and everything that it starts: begun together, found again, and killed together. Nothing of it is left behind."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, NamedTuple

from fullstep.errors import LabError
from fullstep.errors.stops import stops_wait

MARK = "FULLSTEP_TREE"
"""environment variable by which processes are found again: ranks are sessions of their own, and savers outlive them"""
_KILL_SECONDS = 30.0
_SET_SUBREAPER, _GET_SUBREAPER = 36, 37
"""of linux/prctl.h: a process to which orphans come in place of the system's first one"""


class _Runs:
    """All that go on in this process at present, and the processes below it that were there before the first of them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.going: set[int] = set()
        self.count = 0
        self.strangers: frozenset[int] = frozenset()
        self.was_subreaper: bool | None = None


_RUNS = _Runs()


class _Entry(NamedTuple):
    """A process as the system lists it."""

    parent: int
    group: int
    ended: bool
    """nobody has taken note of it yet"""


class Processes:
    """A program and what it started, from its start to the end of all of it.

    Args:
        process: its first one, which has a group of its own
        mark: what all have in their environment, but for those that cleared theirs
    """

    def __init__(self, process: subprocess.Popen[bytes], mark: str) -> None:
        self.first, self._mark = process, mark
        self.known: set[int] = set()
        """ids that it told of: all that is known where the system lists no processes"""

    def kill(self) -> float:
        """SIGKILL to everything that belongs to it. Returns the seconds until all are gone.

        Raises:
            LabError: some are still there after half a minute
        """
        begun = time.monotonic()
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.first.pid, signal.SIGKILL)
        while left := self.left():
            if time.monotonic() - begun > _KILL_SECONDS:
                names = ", ".join(map(str, sorted(map(abs, left))))
                what = f"processes that SIGKILL does not end within {_KILL_SECONDS:g} s: {names}"
                raise LabError(what, remedy="They may wait for a disk or a GPU that does not answer.")
            for each in left:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(each, signal.SIGKILL)
            time.sleep(0.01)
        with suppress(subprocess.TimeoutExpired):  # it has ended; nobody may have asked how
            self.first.wait(_KILL_SECONDS)
        return time.monotonic() - begun

    def left(self) -> set[int]:
        """Of its processes, those that have not ended (its group as a negative id). Takes note of orphans that have."""
        self.first.poll()
        marked = processes_with(f"{MARK}={self._mark}")
        if marked is None:
            return {each for each in (-self.first.pid, *self.known) if _is_there(each)}
        there = _listed()
        roots = {*marked, *(each for each, entry in there.items() if entry.group == self.first.pid)}
        if self.first.returncode is None:
            roots.add(self.first.pid)
        mine = _with_descendants(there, roots | self._orphans(there))
        for each in mine:
            if there[each].ended and there[each].parent == os.getpid() and each != self.first.pid:
                with suppress(ChildProcessError):
                    os.waitpid(each, os.WNOHANG)
        return {each for each in mine if not there[each].ended}

    def take_note(self) -> None:
        """Of orphans that have ended, as the system's first process would: whoever waits until they are gone shall not wait for the end."""
        if _RUNS.was_subreaper is None:
            return
        own = os.getpgrp()
        for each, entry in _listed().items():
            if entry.ended and entry.parent == os.getpid() and entry.group != own and each not in _RUNS.going | _RUNS.strangers:
                with suppress(ChildProcessError):
                    os.waitpid(each, os.WNOHANG)

    def _orphans(self, there: Mapping[int, _Entry]) -> set[int]:
        """That came to this process during the run. Where several runs go on, nobody can tell whose they are: the last one takes them."""
        if _RUNS.was_subreaper is None or _RUNS.count > 1:
            return set()
        own = os.getpgrp()
        ours = {each for each, entry in there.items() if entry.parent == os.getpid() and entry.group != own}
        return ours - _RUNS.strangers - _RUNS.going


@contextmanager
def started(words: Sequence[str], environment: Mapping[str, str], *, stdin: int, stderr: IO[bytes] | int) -> Iterator[Processes]:
    """A program whose output is a pipe; all that it started is gone afterwards, whatever happens.

    A signal that ends this program waits meanwhile, but for what is done inside of :func:`fullstep.errors.stops.stoppable`. Children that
    other threads begin meanwhile in groups of their own count as the run's.

    Raises:
        OSError: there is no such program, or it cannot be started
        LabError: something of it cannot be ended
    """
    mark = uuid.uuid4().hex
    with stops_wait(), _adopting():
        process = subprocess.Popen(
            list(words), env={**environment, MARK: mark}, stdin=stdin, stdout=subprocess.PIPE, stderr=stderr, process_group=0
        )
        _RUNS.going.add(process.pid)
        found = Processes(process, mark)
        try:
            yield found
        except BaseException:
            with suppress(LabError):  # what happened first is what there is to tell
                found.kill()
            raise
        else:
            found.kill()
        finally:
            _RUNS.going.discard(process.pid)
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()


def processes_with(variable: str) -> list[int] | None:
    """Processes that were started with this in their environment; None: the system does not say."""
    if not Path("/proc/self/environ").exists():
        return None
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(OSError):
                if variable.encode() in Path(entry.path, "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def _listed() -> dict[int, _Entry]:
    """All processes by id; empty where the system does not list them."""
    found: dict[int, _Entry] = {}
    if not Path("/proc/self/stat").exists():
        return found
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(OSError):
                state, parent, group = Path(entry.path, "stat").read_bytes().rpartition(b")")[2].split()[:3]  # names may have brackets
                found[int(entry.name)] = _Entry(int(parent), int(group), state in b"ZX")
    return found


def _with_descendants(there: Mapping[int, _Entry], roots: set[int]) -> set[int]:
    """Those that are there, and all below them.

    >>> sorted(_with_descendants({2: _Entry(1, 2, False), 3: _Entry(2, 2, False), 4: _Entry(3, 4, False), 5: _Entry(1, 5, False)}, {2, 9}))
    [2, 3, 4]
    """
    children: dict[int, list[int]] = {}
    for each, entry in there.items():
        children.setdefault(entry.parent, []).append(each)
    found: set[int] = set()
    ahead = [each for each in roots if each in there]
    while ahead:
        each = ahead.pop()
        if each not in found:
            found.add(each)
            ahead.extend(children.get(each, ()))
    return found


@contextmanager
def _adopting() -> Iterator[None]:
    """Orphans of what is started come to this process, where the system can do that; as before afterwards."""
    with _RUNS.lock:
        if not _RUNS.count:
            _RUNS.strangers = frozenset(_with_descendants(_listed(), {os.getpid()}))
            _RUNS.was_subreaper = _become_subreaper(True)
        _RUNS.count += 1
    try:
        yield
    finally:
        with _RUNS.lock:
            _RUNS.count -= 1
            if not _RUNS.count and _RUNS.was_subreaper is False:
                _become_subreaper(False)


def _become_subreaper(on: bool) -> bool | None:
    """Whether this process was one before; None: the system has no such thing, or does not list the orphans to take note of."""
    if sys.platform != "linux" or not Path("/proc/self/stat").exists():
        return None
    with suppress(OSError, AttributeError):
        call, was = ctypes.CDLL(None).prctl, ctypes.c_int()
        rest = (ctypes.c_ulong(0),) * 3
        if call(_GET_SUBREAPER, ctypes.byref(was), *rest) == 0 and call(_SET_SUBREAPER, ctypes.c_ulong(on), *rest) == 0:
            return bool(was.value)
    return None


def _is_there(process: int) -> bool:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(process, 0)
        return True
    return False
