"""One probe on one rank: the program is built, counted steps come first, then timed ones."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from fullstep.job import settings_of, worksheet_from_mapping
from fullstep.lab.probe.task import COUNTED, Record, Task
from fullstep.lab.probe.worker.counters import Counter, counter_of, live_bytes
from fullstep.lab.probe.worker.limits import lift_limit, limit_memory, what_ran_out
from fullstep.lab.probe.worker.overlap import profiled_steps
from fullstep.lab.probe.worker.steps import Steps
from fullstep.lab.program.real import Program, build_program
from fullstep.lab.ranks.joining import join_group
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
    record: Record = {"rank": dist.get_rank(), "device": _name(device), "environment": _environment(device)}
    counter = counter_of(device)
    if _keeps_history(task, device):
        torch.cuda.memory._record_memory_history()
    counter.start()
    if task.limit_bytes is not None:
        limit_memory(device, task.limit_bytes)
    try:
        _run(task, _Rank(device, counter, record, say))
    except BaseException as error:
        said = ran_out(error)
        if said is None:
            raise
        lift_limit(device)
        record["out_of_memory"] = what_ran_out(said, device, task.limit_bytes, counter.at)
        if not counter.is_over:
            _leave_history(task, device)
        record["memory"] = _finished(counter, record["out_of_memory"])
    record["host_peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return record


class _Rank:
    """What the parts of a task share on this rank."""

    def __init__(self, device: torch.device, counter: Counter, record: Record, say: Say) -> None:
        self.device, self.counter, self.record, self.say = device, counter, record, say


def _run(task: Task, rank: _Rank) -> None:
    counter, record = rank.counter, rank.record
    rank.say("building the model")
    counter.mark(0, 0, "load")
    settings = settings_of(worksheet_from_mapping(task.worksheet))
    program = build_program(
        task.config, settings, rank.device, seed=task.seed, dropout=None, rate=_RATE, weights=task.weights,
        attention_dropout=rank.device.type != "cpu",
    )  # fmt: skip
    record |= _sizes(program)
    steps = Steps(program, task.seed + 1 + dist.get_rank(), counter)
    for number in range(1, COUNTED + 1):
        rank.say(f"step {number} of {task.steps}, counting memory")
        steps.step()
    if task.evaluates:
        rank.say("evaluating")
        record["evaluation_seconds"] = steps.evaluate()
    if task.saves_to:
        rank.say("saving")
        record |= _saved(program, task.saves_to, counter, record["environment"])
    record["memory"] = counter.finish()
    _leave_history(task, rank.device)
    if rank.device.type == "cpu":
        record["environment"]["released_unseen_bytes"] = max(record["memory"][-1].allocated_end_bytes - live_bytes(program.model), 0)
    timed = []
    for number in range(COUNTED + 1, task.steps + 1):
        rank.say(f"step {number} of {task.steps}")
        timed.append(steps.step())
    record["steps"] = timed
    if rank.device.type == "cuda":
        rank.say("profiling")
        record["overlap"] = profiled_steps(steps.step, _PROFILED)


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


def _saved(program: Program, folder: str, counter: Counter, environment: Record) -> Record:
    from fullstep.resume import Checkpoints, ResumeError  # noqa: PLC0415 - few probes save

    counter.mark(COUNTED, 0, "save")
    environment["saved_to"] = folder
    try:
        with Checkpoints(folder, model=program.model, optimizer=program.optimizer, signals=()) as checkpoints:
            saved = checkpoints.save(COUNTED)
    except (ResumeError, OSError, ValueError, ImportError) as error:  # what was counted before is worth keeping
        environment["save_failed"] = str(error)[:500]
        return {}
    return {"save_seconds": saved.stall_seconds, "save_bytes": saved.bytes}


def _join(task: Task) -> torch.device:
    return join_group(task.device)


def _sizes(program: Program) -> Record:
    parameters = list(program.model.parameters())
    trained = [each.numel() for each in parameters if each.requires_grad]
    return {"parameters": sum(each.numel() for each in parameters), "trainable_parameters": sum(trained)}


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
