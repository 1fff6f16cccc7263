"""What a job uses of machines that it rents: from its answer, and where nobody stated a figure, from assumptions with bounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, NamedTuple

from fullstep.cost.usage import Usage
from fullstep.evidence import Assumption
from fullstep.job import Job
from fullstep.ledger import Run
from fullstep.offers.assumptions import Assumed, What, assumed
from fullstep.physics.checkpointing import export_bytes, interval_seconds, resumable_bytes, stall_seconds, writing_seconds, written
from fullstep.quantities import DTYPE_BYTES, GB

_HUB_BYTES = DTYPE_BYTES["bfloat16"]
"""of a parameter on the hub, where models of today are kept in 16 bits"""
ENVIRONMENT_GB = 50.0
"""disk for Python, torch, CUDA's libraries and the data set (assumed)"""
_MINUTE = 60.0
_ENDS: tuple[Literal[0], Literal[1], Literal[2]] = (0, 1, 2)


class UsageBounds(NamedTuple):
    """The same job at the low, the likely and the high end of what is known."""

    low: Usage
    likely: Usage
    high: Usage


class Stored(NamedTuple):
    """What a job has on disk [GB], as if one node held all of it."""

    weights: float
    """as they are published"""
    checkpoint: float
    """one from which training can go on"""
    kept: int
    """so many of these, the one that is being written among them"""
    result: float
    environment: float
    """Python, torch, CUDA's libraries, the data set: assumed"""

    @property
    def total(self) -> float:
        """[GB]"""
        return self.weights + self.kept * self.checkpoint + self.result + self.environment


def stored(job: Job) -> Stored:
    """Published weights, ``checkpoint.keep`` checkpoints and the one being written, the result, and the environment."""
    weights = job.shape.parameters * _HUB_BYTES / GB
    return Stored(weights, resumable_bytes(job) / GB, job.checkpoint.keep + 1, export_bytes(job) / GB, ENVIRONMENT_GB)


def usage_of(job: Job, run: Run) -> UsageBounds:
    """What one job uses: hours from its run, seconds before the first step and of a save from what is stated or assumed.

    Args:
        job: complete
        run: what all its steps take
    """
    return UsageBounds(*(_at(job, run, end) for end in _ENDS))


def _at(job: Job, run: Run, end: Literal[0, 1, 2]) -> Usage:
    """At one end; rates are highest where times are lowest."""
    machine, goal = job.machine, job.goal
    write = machine.storage_write_bytes_per_second or _rate("write", end)
    read = machine.storage_read_bytes_per_second or _rate("read", end)
    storing = replace(job, machine=replace(machine, storage_write_bytes_per_second=write))
    disk = stored(job)
    saved = written(job)
    stall, writing = stall_seconds(storing, saved), writing_seconds(storing, saved)
    assert stall is not None and writing is not None, "the rate is stated"
    beside = run.evaluation_seconds[end] + (run.checkpoint_seconds[end] if run.checkpoint_seconds is not None else 0.0)
    weights = disk.weights * GB
    return Usage(
        steps_seconds=run.seconds[end] - beside,
        evaluation_seconds=run.evaluation_seconds[end],
        save_seconds=stall[end],
        write_seconds=writing,
        last_save_seconds=stall[end] + (writing if job.checkpoint.asynchronous else 0.0),
        interval_seconds=interval_seconds(storing, saved),
        start_seconds=assumed("start").bounds[end],
        install_seconds=assumed("install").bounds[end],
        download_seconds=weights / _rate("download", end),
        load_seconds=weights / read,
        restore_seconds=saved.size_bytes / read,
        disk_gb=disk.total,
        result_gb=disk.result,
        runs=goal.runs,
        idle_seconds=goal.idle_hours_between_runs * _MINUTE * _MINUTE,
    )


def cost_assumptions(job: Job, interruptible: bool, stated: frozenset[What] = frozenset()) -> list[Assumption]:
    """The figures that a bill of this job rests on and nobody stated, at their likely value, with their unit in the key.

    Args:
        job: complete
        interruptible: on machines that somebody may take away
        stated: what the user said instead
    """
    names: list[What] = ["start", "install", "download"]
    names += ["write"] if job.machine.storage_write_bytes_per_second is None else []
    names += ["read"] if job.machine.storage_read_bytes_per_second is None else []
    names += ["interrupted_every", "wait"] if interruptible else []
    return [_assumption(name, assumed(name)) for name in names if name not in stated]


def _assumption(name: What, figure: Assumed) -> Assumption:
    unit, factor = ("gb_s", GB) if name in ("download", "write", "read") else ("hours", 3600.0)
    low, likely, high = (round(end / factor, 4) for end in figure.bounds)
    return Assumption(f"cost.{name}_{unit}", likely, f"{low:g} to {high:g}; {figure.evidence}: {figure.source}")


def _rate(what: What, end: Literal[0, 1, 2]) -> float:
    """[B/s]; the highest for the lowest time."""
    return assumed(what).bounds[2 - end]
