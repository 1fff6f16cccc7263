"""The probe of somebody's own training: started with a watch over it, and what its processes left put together."""

from __future__ import annotations

import os
import platform
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from fullstep.errors import Fault, InputError, printable
from fullstep.errors.stops import signal_words, stops_wait
from fullstep.lab.host import busy_notes, host_memory_bytes
from fullstep.lab.probe.command.run import COUNTERS, Ran, run_watched
from fullstep.lab.probe.command.seen import Seen, faults_in, first_failed, ran_out_of, ranks_of, read_seen
from fullstep.lab.ranks.account import Killed, first_killed
from fullstep.lab.room import room_of
from fullstep.ledger.probe import Outcome, OutOfMemory, Probe
from fullstep.probing.faults import ran_out_in, says_so
from fullstep.probing.lines import COUNTER, FOLDER, STEPS

_TOLD_LINES, _WIDTH = 6, 240
_SHELL_SIGNAL = 128
_FROM_OUTSIDE = ("SIGKILL", "SIGTERM", "SIGINT")
"""signals that no error of memory ends in"""
_MOST_WORDS, _MOST_SIGNS = 4096, 2**15
"""of the command in its record"""
NO_STEP = (
    "no optimizer step was seen: the command has to step an optimizer of torch, in a Python that reads PYTHONPATH, outside of a CUDA graph"
)
NOT_KNOWN = "of a command, tokens are not known, and time for data is what torch's DataLoader took; the seed is the command's own"


class WantedCommand(NamedTuple):
    """What is to be run."""

    command: tuple[str, ...]
    steps: int | None = None
    """of the optimizer, after which it is ended; None: it ends by itself"""
    counts_memory: bool = False
    """of processors, by a profiler that runs along"""
    silent_seconds: float = 600.0
    """without output and without a step, after which it hangs"""


def run_command_probe(
    wanted: WantedCommand, *, hear: Callable[[str], None] = lambda _: None, progress: Callable[[str], None] = lambda _: None,
    keep: Callable[[Probe], None] = lambda _: None,
) -> Probe:  # fmt: skip
    """Runs a training unchanged, and measures its steps.

    Args:
        wanted: what is run, and how long
        hear: is told each line of its output
        progress: is told how many steps there are
        keep: is given the record, also where a signal ends the probe

    Raises:
        InputError: there is no such program
        LabError: something of it cannot be ended
        SystemExit, KeyboardInterrupt: a signal ended the probe; nothing is left running
    """
    made, ran = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), Ran(busy=tuple(busy_notes(1)))
    with stops_wait(), room_of("probe") as room:
        folder = Path(room)
        variables = {FOLDER: room, STEPS: str(wanted.steps or ""), COUNTER: str(COUNTERS) if wanted.counts_memory else ""}
        try:
            run_watched(wanted.command, folder, variables, silent_seconds=wanted.silent_seconds, hear=hear, progress=progress, ran=ran)
        except (SystemExit, KeyboardInterrupt) as stop:
            keep(_put_together(wanted, made, ran, folder, signal_words(stop)))
            raise
        found = _put_together(wanted, made, ran, folder)
        keep(found)
    return found


def probe_of_folder(folder: str) -> Probe:
    """What ``probing()`` and ``ProbeCallback`` left in a folder.

    Raises:
        InputError: there is nothing
    """
    path = Path(folder)
    seen = read_seen(path) if path.is_dir() else []
    if not seen:
        found = "no such folder" if not path.is_dir() else "a folder without lines of steps"
        raise InputError(Fault("--seen", f'"{folder[:80]}": {found}', "a folder that fullstep.probing wrote into"))
    ran_out = next((each for one in seen if one.error and (each := ran_out_of(one))), None)
    failed = first_failed(seen)
    outcome: tuple[Outcome, str] = ("completed", "")
    if ran_out is not None:
        outcome = "out_of_memory", ran_out.where
    elif failed is not None:
        outcome = "rank_died", printable(f"rank {failed.rank}: {failed.error}")
    elif any(not each.end for each in seen):
        left = [each for each in seen if not each.end]
        outcome = "rank_died", f"rank {left[0].rank} left without a word after step {left[0].last_step}, or is still running"
    made = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(max(each.stat().st_mtime for each in path.iterdir())))
    return _probe(("fullstep.probing",), made, seen, outcome=outcome, ran_out=ran_out, notes=_notes(seen, []))


def _put_together(wanted: WantedCommand, made: str, ran: Ran, folder: Path, stopped_by: str = "") -> Probe:
    seen = read_seen(folder)
    outcome, reason, ran_out = ("stopped", stopped_by, None) if stopped_by else _outcome(wanted, ran, seen)
    notes = _notes(seen, faults_in(folder))
    if wanted.steps is not None and outcome == "completed" and seen and min(each.last_step for each in seen) < wanted.steps:
        notes.append(f"it ended by itself after step {min(each.last_step for each in seen)}, before the {wanted.steps} that were asked for")
    if ran.how == "had enough":
        notes.append("it had not ended a minute after its last step, and was stopped")
    if outcome not in ("completed", "stopped") and ran.tail:
        notes.append("\n".join(["its output ended with:", *(printable(line[:_WIDTH]) for line in list(ran.tail)[-_TOLD_LINES:])]))
    return _probe(wanted.command, made, seen, outcome=(outcome, reason), ran_out=ran_out, notes=notes, busy=ran.busy)


def _outcome(wanted: WantedCommand, ran: Ran, seen: Sequence[Seen]) -> tuple[Outcome, str, OutOfMemory | None]:
    if ran.how == "hung":
        at = ", ".join(f"rank {each.rank} after step {each.last_step}" for each in seen) or "before any step"
        return "hung", f"no output and no step for {wanted.silent_seconds:g} s: {at}", None
    if ran.how == "had enough" or not ran.status or (seen and all(each.end == "enough" for each in seen)):
        return "completed", "", None
    killed = first_killed("\n".join(ran.tail))
    ran_out = next((each for one in seen if (each := ran_out_of(one))), None) or _ran_out_in_output(ran, seen)
    if ran_out is not None and not (killed and killed.signal in _FROM_OUTSIDE and killed.rank == ran_out.rank):
        return "out_of_memory", ran_out.where, ran_out
    if ran.killed_for_memory > 0:
        rank = killed.rank if killed else 0
        step = next((each.last_step + 1 for each in seen if each.rank == rank), 1)
        told = OutOfMemory(rank, step, "not_known", None, None, None, None)
        return "out_of_memory", f"the system killed it for the host memory that it took: {told.where}", told
    return "rank_died", _death(ran, seen, killed), None


def _death(ran: Ran, seen: Sequence[Seen], killed: Killed | None) -> str:
    if killed:
        last = next((each.last_step for each in seen if each.rank == killed.rank), 0)
        return f"rank {killed.rank} was killed by {killed.signal} after step {last}"
    if failed := first_failed(seen):
        return printable(f"rank {failed.rank} ended after step {failed.last_step}: {failed.error}")
    status = ran.status or 0
    number = -status if status < 0 else status - _SHELL_SIGNAL
    last = max((each.last_step for each in seen), default=0)
    if number > 0:
        with suppress(ValueError):
            return f"the command was killed by {signal.Signals(number).name} after step {last}"
    return f"the command ended with exit code {status} after step {last}"


def _ran_out_in_output(ran: Ran, seen: Sequence[Seen]) -> OutOfMemory | None:
    """Where a framework caught the error and said so; one that steps came after was survived, whatever ended the program then."""
    line = next((line for line in reversed(ran.tail) if says_so(line)), None)
    others = bool(seen) and len(seen) >= _world_size(seen) and all(each.error and not each.of_memory for each in seen)
    if line is None or others or any(each.caught for each in seen):
        return None
    steps = min((each.last_step for each in seen), default=0)
    return OutOfMemory(seen[0].rank if seen else 0, steps + 1, "not_known", *ran_out_in(line))


def _notes(seen: Sequence[Seen], faults: Sequence[str]) -> list[str]:
    notes = [NOT_KNOWN if seen else NO_STEP]
    notes += [printable(f"the watch over rank {each.rank} ended early: {each.fault}") for each in seen if each.fault]
    notes += [printable(f"a process could not be watched: {fault}") for fault in faults]
    notes += [f"rank {each.rank} ran out of memory {each.caught} times and went on" for each in seen if each.caught]
    if any(each.has_no_cycle for each in seen):
        notes.append("optimizers do not follow one another in the same way every time: what counts as a step here may not be one of yours")
    ranks = [each.rank for each in seen]
    again = sorted({rank for rank in ranks if ranks.count(rank) > 1})
    notes += [f"rank {rank} is that of {ranks.count(rank)} processes: of the one with most steps" for rank in again]
    return notes


def _probe(
    command: tuple[str, ...], made: str, seen: Sequence[Seen], *,
    outcome: tuple[Outcome, str], ran_out: OutOfMemory | None, notes: Sequence[str], busy: Sequence[str] = (),
) -> Probe:  # fmt: skip
    head, words = seen[0].head if seen else {}, tuple(word[:_MOST_SIGNS] for word in command[:_MOST_WORDS])
    return Probe(
        outcome=outcome[0], reason=outcome[1], made=made, command=words, seed=None, model=name_of(words)[:_WIDTH], parameters=None,
        trainable_parameters=None, worksheet=None, environment={**_environment(head, _world_size(seen)), "busy": list(busy)},
        ranks=ranks_of(seen), world_size=_world_size(seen), out_of_memory=ran_out, notes=tuple(notes),
    )  # fmt: skip


def _world_size(seen: Sequence[Seen]) -> int:
    """As the first of them says; at least as many as there are ranks to be told of."""
    said = seen[0].head.get("world_size") if seen else None
    return max([said or 1, *(each.rank + 1 for each in seen)])


def name_of(command: Sequence[str]) -> str:
    """Of a training, as one would call it: its script or module.

    >>> name_of(["torchrun", "--nproc-per-node=2", "runs/train.py", "--lr", "1"]), name_of(["python", "-m", "axolotl.cli.train", "a.yaml"])
    ('train.py', 'axolotl.cli.train')
    """
    script = next((word for word in command if word.endswith(".py")), None)
    if script is not None:
        return Path(script).name
    named = [after for word, after in pairwise(command) if word in ("-m", "--module")]
    return (named or [Path(command[0]).name])[0] if command else ""


def _environment(head: dict[str, Any], ranks: int) -> dict[str, Any]:
    devices = [device["name"] for device in head.get("devices", {}).values()]
    found: dict[str, Any] = {
        "device": devices[0] if devices else "cpu", "ranks": ranks, "versions": {"torch": head.get("torch")},
        "python": head.get("python"), "cuda": head.get("cuda"), "threads": head.get("threads"), "optimizers": head.get("optimizers", []),
        "system": platform.platform(), "processors": os.cpu_count(),
    }  # fmt: skip
    return {**found, "host_memory_bytes": host_memory_bytes()}
