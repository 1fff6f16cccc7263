"""Trainings in processes of their own, which are started, signalled and killed, and of which nothing is left afterwards.

A nursery has imported torch once and forks every rank from there: a start takes a fraction of a second instead of many. It also
becomes the parent of what outlives a trainer, so that nobody is overlooked.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
DEADLINE_SECONDS = 120.0
Event = dict[str, Any]


class Training:
    """Ranks that train together, and what they have printed."""

    def __init__(self, nursery: Nursery, pids: list[int], log: Path) -> None:
        self._nursery, self.pids, self.log = nursery, pids, log

    def events(self) -> list[Event]:
        """What they said so far."""
        return _events(self.log)

    def until(self, wanted: Callable[[Event], Any]) -> Event:
        """The first event of that kind, waited for."""
        return _until(self, wanted, self.over)

    def over(self) -> bool:
        """Whether all ranks have ended."""
        return self._nursery.are_over(self.pids)

    def signal(self, number: signal.Signals, ranks: Sequence[int] | None = None) -> None:
        """To the trainers alone."""
        for rank in range(len(self.pids)) if ranks is None else ranks:
            _send(self.pids[rank], number)

    def kill_tree(self) -> None:
        """The trainers and all that they have started, at one instant."""
        tree = self._nursery.left()
        for pid in tree:
            _send(pid, signal.SIGSTOP)
        for pid in tree:
            _send(pid, signal.SIGKILL)

    def ended(self) -> list[int]:
        """The ranks' exit codes, waited for; a signal's is negative."""
        return self._nursery.ended(self.pids)

    def text(self) -> str:
        """All that they printed."""
        return self.log.read_text(encoding="utf-8", errors="replace")


class Nursery:
    """Forks trainings. Used as a context, it leaves none of them running."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._count = folder, 0
        place = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"}
        command = [sys.executable, str(HERE / "nursery.py")]
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen(command, env=place, text=True, start_new_session=True, **pipes)
        self._codes: dict[int, int] = {}

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill_all()
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(timeout=DEADLINE_SECONDS)

    def start(self, *given: object, ranks: int = 2, faults: dict[str, Any] | None = None, spawns: bool = False) -> Training:
        """Ranks of training.py; 0: one process without torch.distributed.

        Args:
            given: its arguments
            ranks: processes
            faults: see faulty.py
            spawns: processes that save are started as torch does it, which takes long; otherwise by a server like this one
        """
        self._count += 1
        log, store = self._folder / f"log-{self._count}", self._folder / f"store-{self._count}"
        log.touch()
        wanted: dict[str, Any] = {"given": [str(each) for each in given], "ranks": ranks, "log": str(log), "store": str(store)}
        wanted |= {"faults": faults or {}, "forks_savers": "process" in given and not spawns}
        return Training(self, self._ask(start=wanted), log)

    def are_over(self, pids: Sequence[int]) -> bool:
        """Whether all of them have ended."""
        self._codes |= {int(pid): code for pid, code in self._ask(ended=list(pids)).items()}
        return all(pid in self._codes for pid in pids)

    def ended(self, pids: Sequence[int]) -> list[int]:
        """Their exit codes, waited for."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not self.are_over(pids):
            assert time.monotonic() < deadline, f"{pids} do not end"
            time.sleep(0.005)
        return [self._codes[pid] for pid in pids]

    def left(self) -> list[int]:
        """Whoever runs of all that was ever started here."""
        stay = self._ask(stays=True)
        return [pid for pid in descendants(self._process.pid) if pid not in stay]

    def wait_for_all(self) -> None:
        """Until nobody is left, orphans among them."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while self.left():
            assert time.monotonic() < deadline, f"{self.left()} do not end"
            time.sleep(0.01)

    def kill_all(self) -> None:
        """Whoever is left."""
        while left := self.left():
            for pid in left:
                _send(pid, signal.SIGKILL)
            time.sleep(0.01)

    def _ask(self, **question: Any) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


def descendants(pid: int) -> Iterator[int]:
    """Children, and theirs, that have not ended."""
    try:
        children = [int(each) for task in Path(f"/proc/{pid}/task").iterdir() for each in (task / "children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return
    for child in children:
        yield child
        yield from descendants(child)


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


class Torchrun:
    """The same training under torchrun. Used as a context, it leaves nothing running.

    Args:
        folder: for its log, of this one alone
        given: arguments of training.py
        ranks: processes
        faults: see faulty.py
        options: of torchrun
    """

    def __init__(self, folder: Path, *given: object, ranks: int, faults: dict[str, Any], options: Sequence[str] = ()) -> None:
        folder.mkdir(exist_ok=True)
        self._log = folder / "torchrun.log"
        self._sign = f"FULLSTEP_TEST={folder}"
        place = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "FAULTS": json.dumps(faults)}
        place |= dict([tuple(self._sign.split("=", 1))])
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), *options]
        with self._log.open("wb") as log:
            script = [str(HERE / "training.py"), *map(str, given)]
            self._agent = subprocess.Popen([*command, *script], env=place, stdout=log, stderr=log, start_new_session=True)

    def __enter__(self) -> Torchrun:
        return self

    def __exit__(self, *_: object) -> None:
        while left := self.left():
            for pid in left:
                _send(pid, signal.SIGKILL)
            self._agent.poll()
            time.sleep(0.01)
        self._agent.wait()

    def left(self) -> list[int]:
        """Whoever runs of it, however it was started: they all inherit a sign."""
        return [int(path.name) for path in Path("/proc").glob("[0-9]*") if self._sign.encode() in _surroundings(path)]

    def events(self) -> list[Event]:
        """What they said so far."""
        return _events(self._log)

    def text(self) -> str:
        """All that they printed."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def until(self, wanted: Callable[[Event], Any]) -> Event:
        """The first event of that kind, waited for."""
        return _until(self, wanted, lambda: self._agent.poll() is not None)

    def signal(self, number: signal.Signals) -> None:
        """To torchrun itself."""
        _send(self._agent.pid, number)

    def ended(self) -> int:
        """Its exit code, waited for."""
        return self._agent.wait(timeout=DEADLINE_SECONDS)


def _surroundings(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes()
    except OSError:
        return b""


def _events(log: Path) -> list[Event]:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]


def _until(training: Training | Torchrun, wanted: Callable[[Event], Any], over: Callable[[], bool]) -> Event:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        ended = over()
        for event in training.events():
            if wanted(event):
                return event
        if ended:
            break
        time.sleep(0.005)
    raise AssertionError(f"not seen in:\n{training.text()}")
