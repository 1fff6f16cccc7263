"""A command from its start to its end, with the hook in its environment. Nothing of it is left behind."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from fullstep.errors.stops import stoppable
from fullstep.lab.ranks.output import Output, command_started
from fullstep.lab.ranks.processes import Processes
from fullstep.probing.lines import SUFFIX, how_many_have_enough

HOOK = Path(__file__).parent / "hook"
COUNTERS = Path(__file__).parent.parent / "worker" / "counters.py"
_TAIL_LINES = 80
"""torchrun's account of a death takes thirty"""
_LOOK_SECONDS = 0.5
_END_SECONDS = 60.0
"""for a command all of whose steps have been made to end"""


@dataclass(slots=True)
class Ran:
    """How it went."""

    how: Literal["ended", "hung", "had enough", "not ended"] = "not ended"
    """had enough: it had made its steps, did not end, and was stopped"""
    busy: Sequence[str] = ()
    """what else kept the machine busy before"""
    status: int | None = None
    """exit code; -n: by signal n"""
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=_TAIL_LINES))
    seconds: float = 0.0
    killed_for_memory: int = 0
    """processes that the system killed meanwhile, for what is allowed to this one and those beside it"""


def run_watched(
    command: Sequence[str], folder: Path, variables: Mapping[str, str], *,
    silent_seconds: float, hear: Callable[[str], None], progress: Callable[[str], None], ran: Ran,
) -> None:  # fmt: skip
    """Runs it to its end.

    Args:
        command: a program and its arguments
        folder: where its processes leave their lines
        variables: of the environment, besides the hook
        silent_seconds: without output and without a step, after which it hangs
        hear: is told each line of its output
        progress: is told how many steps there are
        ran: is filled in, also where a signal ends this program

    Raises:
        InputError: there is no such program
        LabError: something of it cannot be ended
        SystemExit, KeyboardInterrupt: a signal ended this program
    """
    begun, before = time.monotonic(), _killed_for_memory()
    with command_started(command, _environment(variables)) as family:
        output, steps = Output(family), _Steps(folder, progress)

        def heard(line: str) -> None:
            ran.tail.append(line)
            hear(line)

        try:
            with stoppable():
                _listen(family, output, heard, ran, lambda: _is_over(output, steps, silent_seconds, ran))
        finally:
            ran.seconds = time.monotonic() - begun
            ran.killed_for_memory = _killed_for_memory() - before
        family.kill()
        output.take_rest(ended=ran.how == "ended")
        for line in output.left():
            heard(line)


def _listen(family: Processes, output: Output, heard: Callable[[str], None], ran: Ran, is_over: Callable[[], bool]) -> None:
    for line in output.lines():
        if line is not None:
            heard(line)
        elif is_over():
            return
    while family.first.poll() is None:  # it has closed its output, and goes on
        if is_over():
            return
        family.take_note()
        time.sleep(_LOOK_SECONDS / 5)
    ran.how, ran.status = "ended", family.first.returncode


def _is_over(output: Output, steps: _Steps, silent_seconds: float, ran: Ran) -> bool:
    steps.look()
    if steps.enough_for_seconds > _END_SECONDS:
        ran.how = "had enough"
    elif min(output.silent_seconds, steps.silent_seconds) > silent_seconds:
        ran.how = "hung"
    return ran.how != "not ended"


class _Steps:
    """What its processes have left so far."""

    def __init__(self, folder: Path, progress: Callable[[str], None]) -> None:
        self._folder, self._progress = folder, progress
        self._sizes: dict[str, int] = {}
        self._changed = self._looked = time.monotonic()
        self._enough: float | None = None

    @property
    def silent_seconds(self) -> float:
        return time.monotonic() - self._changed

    @property
    def enough_for_seconds(self) -> float:
        """Since the first process had made all of its steps; 0: none has."""
        return 0.0 if self._enough is None else time.monotonic() - self._enough

    def look(self) -> None:
        if time.monotonic() - self._looked < _LOOK_SECONDS:
            return
        self._looked = time.monotonic()
        sizes = {path.name: path.stat().st_size for path in self._folder.glob(f"*{SUFFIX}")}
        if sizes and sizes != self._sizes:
            self._sizes, self._changed = sizes, self._looked
            self._progress(f"step {_last_step(self._folder / min(sizes))}")
        if self._enough is None and how_many_have_enough(self._folder):
            self._enough = self._looked


def _last_step(path: Path) -> str:
    with path.open("rb") as stream:
        stream.seek(max(0, path.stat().st_size - 2**16))
        numbers = [text.partition(b",")[0] for text in stream.read().split(b'{"step": ')[1:]]
    return numbers[-1].decode("ascii", "replace") if numbers else "1"


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    others = os.environ.get("PYTHONPATH")
    path = f"{HOOK}{os.pathsep}{others}" if others else str(HOOK)
    return {**os.environ, "PYTHONUNBUFFERED": "1", **variables, "PYTHONPATH": path}


def _killed_for_memory() -> int:
    """Processes that the system has killed so far because this group of processes, or one below it, had used up its memory."""
    if sys.platform != "linux":
        return 0
    try:
        group = next(line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::"))
        events = Path("/sys/fs/cgroup", group.strip("/"), "memory.events").read_text()
        return sum(int(line.split()[1]) for line in events.splitlines() if line.startswith("oom_kill "))
    except (OSError, ValueError, StopIteration):
        return 0
