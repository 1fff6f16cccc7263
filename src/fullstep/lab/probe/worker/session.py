"""One probe on one rank: the program is built, counted steps come first, then timed ones."""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist

from fullstep.job import Settings, settings_of, worksheet_from_mapping
from fullstep.lab.probe.known import Known, known_path
from fullstep.lab.probe.task import COUNTED, Record, Task
from fullstep.lab.probe.worker.counters import Counter, ProcessorCounter, Stretch, live_bytes
from fullstep.lab.probe.worker.gpu import CudaCounter
from fullstep.lab.probe.worker.limits import lift_limit, limit_memory, observe_ends, unlimited, what_ran_out
from fullstep.lab.probe.worker.overlap import profiled_steps
from fullstep.lab.probe.worker.steps import Steps
from fullstep.lab.program.casting import answered_as_on_gpus
from fullstep.lab.program.real import Program, build_program
from fullstep.lab.ranks.joining import agreed, join_group, require_the_same
from fullstep.probing.faults import ran_out

_RATE = 1e-5
_PROFILED = 2
"""steps"""
Say = Callable[[str], None]


def run_task(task: Task, say: Say) -> Record:
    """All of the task; where memory runs out, what was seen until then.

    Args:
        task: of the front
        say: is told what begins

    Returns:
        the record of this rank: ``memory``, ``steps``, ``overlap`` (as :mod:`fullstep.ledger.probe` has them), what it ran on
    """
    say("joining the process group")
    device = _join(task)
    alike = task._replace(records="", saves_to=str(bool(task.saves_to)))  # folders are each node's own
    require_the_same("worksheets, seeds or options", json.dumps(alike))
    rank = _Rank(task, device, say)
    record, counter = rank.known.record, rank.counter
    rank.tell({"rank": dist.get_rank(), "device": _name(device), "environment": _environment(device)})
    if _keeps_history(task, device):
        torch.cuda.memory._record_memory_history()
    counter.start()
    observed = observe_ends(device)
    if task.limit_bytes is not None:
        limit_memory(device, task.limit_bytes)
    try:
        _run(task, rank)
    except BaseException as error:
        said = ran_out(error)
        if said is None:
            raise
        lift_limit(device)
        record["out_of_memory"] = what_ran_out(said, device, task.limit_bytes, counter.at, observed)
        if not counter.is_over:
            _leave_history(task, device)
        record["memory"] = _finished(counter, record["out_of_memory"])
    record["host_peak_bytes"] = _host_peak_bytes()
    return record


class _Rank:
    """What the parts of a task share on this rank."""

    def __init__(self, task: Task, device: torch.device, say: Say) -> None:
        self.device, self.say = device, say
        self.counter: Counter = CudaCounter(device) if device.type == "cuda" else ProcessorCounter()
        self.known = Known(known_path(task.records, dist.get_rank()))
        self._told = 0

    def tell(self, found: Record) -> None:
        """Is in the record from now on, whatever becomes of this process."""
        self.known.add(found)

    def tell_memory(self, stretches: Sequence[Stretch]) -> None:
        """Those that were not told yet.

        Args:
            stretches: all that have ended
        """
        self.tell({"memory": list(stretches[self._told :]), "host_peak_bytes": _host_peak_bytes()})
        self._told = len(stretches)


def _run(task: Task, rank: _Rank) -> None:
    counter = rank.counter
    rank.say("building the model")
    counter.mark(0, 0, "load")
    settings = settings_of(worksheet_from_mapping(task.worksheet))
    with answered_as_on_gpus(settings) if rank.device.type == "cpu" else nullcontext():
        _train(task, rank, settings)


def _train(task: Task, rank: _Rank, settings: Settings) -> None:
    counter = rank.counter
    program = build_program(
        task.config, settings, rank.device, seed=task.seed, dropout=None, rate=_RATE, weights=task.weights,
        attention_dropout=rank.device.type != "cpu",
    )  # fmt: skip
    rank.tell(_sizes(program))
    counter.take_model(program.model)
    steps = Steps(program, task.seed + 1 + dist.get_rank(), counter)
    if settings.step.compile:
        rank.say("compiling the model, which takes a while")
        steps.compile()
        rank.tell_memory(counter.ended)
    for number in range(1, COUNTED + 1):
        rank.say(f"step {number} of {task.steps}, counting memory")
        steps.step()
        rank.tell_memory(counter.ended)
    if task.evaluates:
        rank.say("evaluating")
        rank.tell({"evaluation_seconds": steps.evaluate()})
    if task.saves_to:
        rank.say("saving")
        rank.tell(_saved(program, agreed(task.saves_to), counter))
    with unlimited(rank.device):  # a profiler's events, and the account of what lives, take room of their own
        memory = counter.finish()
        rank.tell_memory(memory)
        _leave_history(task, rank.device)
        if rank.device.type == "cpu":
            rank.tell({"environment": {"released_unseen_bytes": max(memory[-1].allocated_end_bytes - live_bytes(program.model), 0)}})
    for number in range(COUNTED + 1, task.steps + 1):
        rank.say(f"step {number} of {task.steps}")
        rank.tell({"steps": [steps.step()], "host_peak_bytes": _host_peak_bytes()})
    if rank.device.type == "cuda":
        rank.say("profiling")
        rank.tell({"overlap": profiled_steps(steps.step, _PROFILED)})


def _host_peak_bytes() -> int:
    """The most memory that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _keeps_history(task: Task, device: torch.device) -> bool:
    return bool(task.snapshot) and device.type == "cuda" and dist.get_rank() == 0


def _leave_history(task: Task, device: torch.device) -> None:
    """The allocator's history of the counted steps; it keeps none of the timed ones, which would take longer."""
    if _keeps_history(task, device):
        torch.cuda.memory._dump_snapshot(task.snapshot)
        torch.cuda.memory._record_memory_history(enabled=None)


def _finished(counter: Counter, ran_out: dict[str, Any]) -> list[Any]:
    """What was counted; of processors it says only now how much was allocated when memory ran out, if it still counted then."""
    was_over, found = counter.is_over, counter.finish()
    if found and not was_over and ran_out["allocated_bytes"] is None:
        ran_out["allocated_bytes"] = found[-1].allocated_end_bytes
    return found


def _saved(program: Program, folder: str, counter: Counter) -> Record:
    from fullstep.resume import Checkpoints, ResumeError  # noqa: PLC0415 - few probes save

    counter.mark(COUNTED, 0, "save")
    environment: Record = {"saved_to": folder}
    try:
        with Checkpoints(folder, model=program.model, optimizer=program.optimizer, signals=()) as checkpoints:
            saved = checkpoints.save(COUNTED)
    except (ResumeError, OSError, ValueError, ImportError) as error:  # what was counted before is worth keeping
        return {"environment": {**environment, "save_failed": str(error)[:500]}}
    return {"save_seconds": saved.stall_seconds, "save_bytes": saved.bytes, "environment": environment}


def _join(task: Task) -> torch.device:
    """Saves gather on processors; nothing else of a probe on GPUs needs more than NCCL."""
    return join_group(task.device) if task.saves_to else join_group(task.device, "nccl")


def _sizes(program: Program) -> Record:
    return {"parameters": program.parameters, "trainable_parameters": program.trainable_parameters}


def _name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def _environment(device: torch.device) -> Record:
    found: Record = {"torch": torch.__version__, "python": sys.version.split()[0], "threads": torch.get_num_threads()}
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        about = torch.cuda.get_device_properties(device)
        found |= {
            "cuda": torch.version.cuda, "capability": f"{about.major}.{about.minor}", "device_memory_bytes": about.total_memory,
            "device_used_before_bytes": total - free, "nccl": ".".join(map(str, torch.cuda.nccl.version())),
        }  # fmt: skip
    return {**found, "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
