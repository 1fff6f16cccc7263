"""Torchrun and its ranks: listened to, killed when it is time, and never left behind."""

from __future__ import annotations

import json
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

from fullstep.errors import Fault, FullstepError, InputError, LabError, UnsupportedError, printable
from fullstep.lab.ranks import processes
from fullstep.lab.ranks.account import first_killed
from fullstep.lab.ranks.nodes import ONE_NODE, Nodes, without_launcher
from fullstep.lab.ranks.processes import Processes

_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "TOKENIZERS_PARALLELISM": "false",
    "PYTHONOPTIMIZE": "", "PYTHONSAFEPATH": "1", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
}  # fmt: skip
_LOOK_SECONDS = 0.2
_END_SECONDS = 60.0
"""for processes that have said all to end"""
_ACCOUNT_SECONDS = 5.0
"""for torchrun to say which rank died first"""
_TAIL_BYTES, _TAIL_LINES, _TAIL_WIDTH = 2**15, 12, 240
_TOO_LITTLE_MEMORY = "The system kills what takes more memory than there is: fewer ranks, shorter rows or a smaller model take less."
_IN_USE = re.compile("EADDRINUSE|address already in use", re.IGNORECASE)
_REPORT = "Please report this with the command."


class RanksFailedError(FullstepError):
    """What the ranks were to show does not hold, and one of them said so."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(what)


class SilentError(LabError):
    """No rank said anything for longer than a rank may take."""


class Tree:
    """From the start of torchrun to its end.

    Args:
        name: for messages: ``leg "saving"``
        ranks: that were started on this node: the first of them, and those after it
        family: torchrun and all below it
        complaints: what they write to standard error
        nodes: that take part
    """

    def __init__(self, name: str, ranks: range, family: Processes, complaints: IO[bytes], nodes: Nodes = ONE_NODE) -> None:
        self.name, self.ranks, self._nodes = name, ranks, nodes
        self.started_at = time.time()
        self.family = family
        self._process, self._complaints = family.first, complaints
        self._stages: dict[int, str] = {}
        self._done: set[int] = set()
        self.ended_early = False
        """a rank left its record before its work was done: the others may wait for it"""

    def wait_for_ranks(self, silent_seconds: float, progress: Callable[[str], None]) -> None:
        """Returns when every rank has left its record; or one before its work was done, and the others have had time to do so too.

        Raises:
            InputError: the program cannot be built from the worksheet
            RanksFailedError: what they were to show does not hold
            LabError: a rank died, made no sense, or none said anything for ``silent_seconds``
        """
        for line in self._lines(silent_seconds):
            message = self._message(line)
            rank = int(message["rank"])
            if "process" in message:
                self.family.known.add(int(message["process"]))
            if "progress" in message:
                self._stages[rank] = printable(str(message["progress"])[:_TAIL_WIDTH])
                if rank == self.ranks.start:
                    progress(self._stages[rank])
            if not self.ended_early:  # else they complain of the one that is gone
                self._raise_complaint(message, rank)
            if "done" in message:
                self._done.add(rank)
                self.ended_early |= bool(message.get("early"))
                if len(self._done) == len(self.ranks):
                    return
        if not self.ended_early:
            raise self._died()

    def wait_for_end(self) -> None:
        """Returns when all its processes have ended by themselves.

        Raises:
            LabError: they did not, or not well
        """
        try:
            status = self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            raise self._error(f"did not end within {_END_SECONDS:g} s after its work was done", _REPORT) from None
        if status:
            raise self._died()

    def _lines(self, silent_seconds: float) -> Iterator[bytes]:
        """Whole lines as they come, until the end of output or of torchrun."""
        pipe = self._process.stdout
        assert pipe is not None
        rest, heard = bytearray(), time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while True:
                silent = time.monotonic() - heard
                if self.ended_early and silent > _ACCOUNT_SECONDS:
                    return
                if silent > silent_seconds:
                    raise self._silent(silent_seconds)
                self.family.take_note()
                if not selector.select(_LOOK_SECONDS):
                    if self._process.poll() is not None:
                        return
                    continue
                chunk = os.read(pipe.fileno(), 2**16)
                if not chunk:
                    return
                heard = time.monotonic()
                *whole, last = chunk.split(b"\n")
                for line in whole:
                    yield bytes(rest) + line
                    rest.clear()
                rest += last

    def _silent(self, silent_seconds: float) -> LabError:
        remedy = "A rank hangs, or what it does takes longer here: allow more with --silent-seconds."
        if not self._stages and self._nodes.total > 1:
            where = f"{self._nodes.host}:{self._nodes.port}"
            remedy = f"Other nodes have not come to {where}: was the same command started on all {self._nodes.total}?"
        return self._error(f"said nothing for {silent_seconds:g} s and was stopped", remedy, SilentError)

    def _message(self, line: bytes) -> dict[str, Any]:
        with suppress(ValueError, RecursionError):
            message = json.loads(line)
            if isinstance(message, dict) and type(message.get("rank")) is int:
                return message
        raise self._error(f"said something that is no message: {line[:80].decode('utf-8', 'replace')!r}", _REPORT)

    def _raise_complaint(self, message: dict[str, Any], rank: int) -> None:
        for kind, error in (("faults", InputError), ("unsupported", UnsupportedError)):
            if kind in message:
                raise error(*(Fault(*map(str, parts)) for parts in message[kind]))
        if "failed" in message:
            raise RanksFailedError(printable(str(message["failed"])))
        if "crash" in message:
            with suppress(subprocess.TimeoutExpired):  # it may have stopped because another one was killed
                self._process.wait(_ACCOUNT_SECONDS)
            if killed := self._killed():
                raise killed
            lines = str(message.get("traceback", "")).splitlines()[-_TAIL_LINES:]
            what = f'rank {rank} of {self.name} stopped: {str(message["crash"])[:500]}; last stage: "{self._stage(rank)}"'
            raise LabError(what, details=tuple(line[:_TAIL_WIDTH] for line in lines))

    def _stage(self, rank: int | None = None) -> str:
        return self._stages.get(self.ranks.start if rank is None else rank, "starting")

    def _died(self) -> LabError:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS / 2)
        if killed := self._killed():
            return killed
        if not self._stages and self._nodes.total > 1 and _IN_USE.search(self._complained()):
            return self._error(f"cannot use port {self._nodes.port} of {self._nodes.host}, which is in use", "--rendezvous names another.")
        status = self._process.poll()
        if status is not None and status < 0:
            return self._error(f"lost its launcher, which was killed by {signal.Signals(-status).name}", "")
        return self._error(f"ended before its work was done (exit code {status})", _REPORT)

    def _killed(self) -> LabError | None:
        """The rank that died first, where a signal ended it."""
        killed = first_killed(self._complained())
        if killed is None:
            return None
        what = f'rank {killed.rank} of {self.name} was killed by {killed.signal}; last stage: "{self._stage(killed.rank)}"'
        return LabError(what, remedy=_TOO_LITTLE_MEMORY if killed.signal == "SIGKILL" else "")

    def _error(self, what: str, remedy: str, kind: type[LabError] = LabError) -> LabError:
        return kind(f'{self.name} {what}; last stage: "{self._stage()}"', remedy=remedy, details=tuple(self._tail()))

    def _tail(self) -> list[str]:
        return [line.rstrip()[:_TAIL_WIDTH] for line in self._complained().splitlines() if line.strip(" =-\n")][-_TAIL_LINES:]

    def _complained(self) -> str:
        """The end of what all of them wrote to standard error."""
        with suppress(OSError):
            size = os.fstat(self._complaints.fileno()).st_size
            self._complaints.seek(max(0, size - _TAIL_BYTES))
            return self._complaints.read(_TAIL_BYTES).decode("utf-8", "replace")
        return ""


@contextmanager
def started(
    name: str, ranks: int, worker: str, task: Path, environment: Mapping[str, str], *, nodes: Nodes = ONE_NODE
) -> Iterator[Tree]:  # fmt: skip
    """Torchrun with this many ranks, each of which runs the worker with the task; all of them are gone afterwards, whatever happens.

    Args:
        name: for messages
        ranks: on this machine
        worker: a module that is run by name
        task: a file that tells what to do; what torchrun leaves in its temporary folder goes beside it
        environment: besides what every experiment sets
        nodes: on each of which the same is started

    Raises:
        LabError: no process can be started
    """
    surroundings = {**without_launcher(os.environ), **_ENVIRONMENT, **environment, "TMPDIR": str(task.parent)}
    with ExitStack() as stack:
        try:
            complaints = stack.enter_context(TemporaryFile())
            words = command(ranks, worker, task, nodes)
            family = stack.enter_context(processes.started(words, surroundings, stdin=subprocess.PIPE, stderr=complaints))
        except OSError as error:
            what = f"its processes cannot be started: {error.strerror or error}"
            raise LabError(what, remedy="They need a temporary folder that can be written, and room for more processes.") from None
        yield Tree(name, range(nodes.rank * ranks, (nodes.rank + 1) * ranks), family, complaints, nodes)


def command(ranks: int, worker: str, task: Path, nodes: Nodes = ONE_NODE) -> Sequence[str]:
    """What is started: a rendezvous of its own, on one node on a free port, and no second try."""
    launcher = ["-m", "torch.distributed.run", *nodes.launcher_words, f"--nproc-per-node={ranks}", "--max-restarts=0"]
    return [sys.executable, *launcher, "-m", worker, str(task)]
