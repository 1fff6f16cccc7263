"""A probe from the start of its ranks to its record."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fullstep.errors import LabError
from fullstep.errors.stops import signal_words, stoppable, stops_wait
from fullstep.lab.host import host_memory_bytes
from fullstep.lab.probe.known import left_by
from fullstep.lab.probe.task import Record, Task, write_task
from fullstep.lab.ranks.nodes import ONE_NODE, Nodes
from fullstep.lab.ranks.tree import SilentError, started
from fullstep.lab.room import room_of
from fullstep.ledger.probe import Outcome, OutOfMemory, Overlap, Probe, ProbedRank, StepSample, Stretch
from fullstep.quantities import counted

Progress = Callable[[str], None]
_WORKER = "fullstep.lab.probe.worker"
_ASK_SECONDS = 10


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is to be probed. Its limits were looked at before."""

    worksheet: dict[str, Any]
    config: dict[str, Any]
    """of the model"""
    model: str
    device: str
    """cpu or cuda"""
    ranks: int
    """of this node, and of each other one"""
    steps: int
    seed: int
    command: tuple[str, ...]
    versions: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    busy: tuple[str, ...] = ()
    """what else kept this machine busy before it began"""
    weights: str = ""
    evaluates: bool = False
    saves_to: str = ""
    snapshot: str = ""
    limit_bytes: int | None = None
    silent_seconds: float = 600.0
    nodes: Nodes = ONE_NODE

    @property
    def world_size(self) -> int:
        return self.ranks * self.nodes.total


def run_probe(wanted: Wanted, progress: Progress = lambda _: None, keep: Callable[[Probe], None] = lambda _: None) -> Probe | None:
    """Runs it. A rank that dies or hangs is an outcome, of which the record says what is known.

    Of several nodes the first one tells of all that completed. Where memory runs out or a rank dies, each one tells of its own ranks.

    Args:
        wanted: what is probed
        progress: is told the stages as they come
        keep: is given the record, also where a signal ends the probe

    Returns:
        None: it completed, and the first node tells of it

    Raises:
        InputError: the program cannot be built from the worksheet
        SystemExit, KeyboardInterrupt: a signal ended it; nothing is left running
    """
    outcome: tuple[Outcome, str] = ("completed", "")
    wrote: tuple[str, ...] = ()
    made = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    with stops_wait(), room_of("probe") as room:
        task = _task(wanted, room)
        write_task(task, Path(room, "task.json"))
        try:
            _go(wanted, Path(room, "task.json"), progress)
        except SilentError as error:
            outcome, wrote = ("hung", _said_of(error)), error.details
        except LabError as error:
            outcome, wrote = ("rank_died", _said_of(error)), error.details
        except (SystemExit, KeyboardInterrupt) as stop:
            keep(_probe_of(wanted, made, ("stopped", signal_words(stop)), _records(room, wanted.world_size)))
            raise
        found = _probe_of(wanted, made, outcome, _records(room, wanted.world_size))
    if wrote:
        found = replace(found, environment={**found.environment, "last_lines": list(wrote)})
    if wanted.nodes.rank and found.outcome == "completed":
        return None
    keep(found)
    return found


def _said_of(error: LabError) -> str:
    """What happened and what to do, without the last lines that its processes wrote."""
    return f"{error.what}. {error.remedy}" if error.remedy else error.what


def _task(wanted: Wanted, room: str) -> Task:
    return Task(
        worksheet=wanted.worksheet, config=wanted.config, device=wanted.device, seed=wanted.seed, steps=wanted.steps, records=room,
        weights=wanted.weights, evaluates=wanted.evaluates, saves_to=_own_folder(wanted.saves_to), snapshot=wanted.snapshot,
        limit_bytes=wanted.limit_bytes,
    )  # fmt: skip


def _own_folder(saves_to: str) -> str:
    """A new one in it, so that checkpoints of a training that lie there are left alone; empty: nothing is saved."""
    return f"{saves_to.rstrip('/')}/fullstep-probe-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}" if saves_to else ""


def _go(wanted: Wanted, task: Path, progress: Progress) -> None:
    from_hub = bool(wanted.weights) and not Path(wanted.weights).exists()
    environment = {"HF_HUB_OFFLINE": "0"} if from_hub else {}
    progress(f"starting {counted(wanted.ranks, 'rank')}{wanted.nodes.words}")
    with started("the probe", wanted.ranks, _WORKER, task, environment, nodes=wanted.nodes) as tree, stoppable():
        tree.wait_for_ranks(wanted.silent_seconds, progress)
        if not tree.ended_early:
            tree.wait_for_end()


def _records(room: str, ranks: int) -> list[Record]:
    """Of those ranks that left one, or a part of it."""
    return [record for rank in range(ranks) if (record := left_by(room, rank)) is not None]


def _probe_of(wanted: Wanted, made: str, outcome: tuple[Outcome, str], records: Sequence[Record]) -> Probe:
    ran_out = next((_ran_out(record) for record in records if "out_of_memory" in record), None)
    if ran_out is not None:
        outcome = "out_of_memory", ran_out.where
    elif outcome[0] != "completed" and wanted.nodes.total > 1:
        outcome = outcome[0], f"{outcome[1]} (ranks of this node; those of others are told of there)"
    first = records[0] if records else {}
    return Probe(
        outcome=outcome[0], reason=outcome[1], made=made, command=wanted.command, seed=wanted.seed, model=wanted.model,
        parameters=first.get("parameters"), trainable_parameters=first.get("trainable_parameters"), worksheet=wanted.worksheet,
        environment=_environment(wanted, first), ranks=tuple(_rank(record) for record in records), world_size=wanted.world_size,
        out_of_memory=ran_out, notes=wanted.notes,
    )  # fmt: skip


def _ran_out(record: Record) -> OutOfMemory:
    return OutOfMemory(rank=record["rank"], **record["out_of_memory"])


def _rank(record: Record) -> ProbedRank:
    return ProbedRank(
        rank=record["rank"], device=record["device"], memory=tuple(Stretch(*each) for each in record.get("memory", ())),
        steps=tuple(StepSample(*each) for each in record.get("steps", ())), host_peak_bytes=record.get("host_peak_bytes"),
        overlap=tuple(Overlap(*each) for each in record.get("overlap", ())), evaluation_seconds=record.get("evaluation_seconds"),
        save_seconds=record.get("save_seconds"), save_bytes=record.get("save_bytes"),
    )  # fmt: skip


def _environment(wanted: Wanted, first: Record) -> dict[str, Any]:
    """Where it ran: what the ranks say, and what the machine says without torch."""
    found: dict[str, Any] = {
        "device": first.get("device", wanted.device), "ranks": wanted.world_size, "nodes": wanted.nodes.total,
        "versions": dict(wanted.versions), "busy": list(wanted.busy), "system": platform.platform(), "processors": os.cpu_count(),
        "host_memory_bytes": host_memory_bytes(), "commit": _commit(),
    }  # fmt: skip
    found |= {name: value for name, value in first.get("environment", {}).items() if name != "torch"}
    if wanted.device == "cuda":
        found["driver"] = _said(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]).partition("\n")[0]
    return found


def _commit() -> str:
    """Of the folder in which the probe was started; empty: it is no checkout."""
    return _said(["git", "rev-parse", "HEAD"])


def _said(words: Sequence[str]) -> str:
    """What a program prints; empty where there is none."""
    try:
        done = subprocess.run(list(words), capture_output=True, text=True, check=True, timeout=_ASK_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
