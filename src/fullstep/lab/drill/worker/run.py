"""One training of a leg from its beginning or a checkpoint to its last step, and what was seen of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from typing import Any

import torch

from fullstep.lab.drill.leg import Leg, Run
from fullstep.lab.drill.worker.differences import copy_of, largest_differences, round_state
from fullstep.lab.drill.worker.memory import watched_memory
from fullstep.lab.drill.worker.random_numbers import random_digests
from fullstep.lab.drill.worker.training import Training
from fullstep.lab.program.classes import faults_of_class
from fullstep.resume import LoadError

Say = Callable[[str], None]


def go_through(leg: Leg, run: Run, device: torch.device, say: Say, clock: dict[str, float]) -> tuple[dict[str, Any], Training]:
    """Runs it.

    Args:
        leg: of the front
        run: which of its trainings
        device: of this rank
        say: is told what begins
        clock: is given the moments at which stages end, for those that are not in it yet [seconds since 1970]

    Returns:
        what was seen, and the training as it ended
    """
    say(f"{run.name}: building the model")
    with faults_of_class(torch.nn.Module()):
        training = Training(leg, run, device)
    clock.setdefault("built", time.time())
    seen: dict[str, Any] = {"name": run.name, "steps": {}, "digests": {}, "saves": [], "loaded": None, "checked_seconds": 0.0}
    first = 1
    if run.resumes:
        first = _load(training, run, seen, say, clock) + 1
    for step in range(first, run.last_step + 1):
        say(f"{run.name}: step {step} of {run.last_step}")
        seen["steps"][str(step)] = training.step()
        clock.setdefault("first_step", time.time())
        if step in run.digest_at:
            seen["digests"][str(step)] = _digests(training)
        if step in run.save_at:
            _save(training, step, seen, say)
    _finish(training, seen)
    _compare_ends(training, run, seen, say)
    training.checkpoints.close()
    return seen, training


def _load(training: Training, run: Run, seen: dict[str, Any], say: Say, clock: dict[str, float]) -> int:
    say(f"{run.name}: loading")
    loaded = training.checkpoints.load(without=run.without)
    if loaded is None:
        raise LoadError(f"there is no whole checkpoint in {training.leg.folder}, where one was saved")
    clock.setdefault("loaded", time.time())
    seen["loaded"] = asdict(loaded)
    if run.rounds_state:
        round_state(training.program.model, training.program.optimizer)
    begun = time.perf_counter()
    seen["digests"]["loaded"] = _digests(training)
    seen["checked_seconds"] = time.perf_counter() - begun
    return loaded.step


def _digests(training: Training) -> dict[str, str] | None:
    """Of the whole state, in the record of the first rank alone; of random numbers besides those of the library the drill's own."""
    found = {**training.checkpoints.digests(), **random_digests()}
    return found if training.rank == 0 else None


def _save(training: Training, step: int, seen: dict[str, Any], say: Say) -> None:
    """The first save of a run warms up what saving needs; memory is watched there, where it does not disturb what is timed."""
    warm_up = not seen["saves"]
    _finish(training, seen)
    seen["digests"][f"saved {step}"] = _digests(training)
    say(f"{training.run.name}: saving step {step}")
    with watched_memory() if warm_up and training.leg.samples_memory else nullcontext() as peak:
        begun = time.perf_counter()
        saved = training.checkpoints.save(step)
        if warm_up and training.leg.samples_memory:
            training.checkpoints.finish()
    seen["saves"].append({**asdict(saved), "wall_seconds": time.perf_counter() - begun})
    if peak is not None:
        seen["memory"] = {"before_bytes": peak.before_bytes, "most_bytes": peak.most_bytes, "after_bytes": peak.after_bytes}


def _finish(training: Training, seen: dict[str, Any]) -> None:
    """An upload in flight ends; what is known of it by then takes the place of what was known before."""
    saved = training.checkpoints.finish()
    if saved is not None:
        seen["saves"][-1] |= asdict(saved)


def _compare_ends(training: Training, run: Run, seen: dict[str, Any], say: Say) -> None:
    program = training.program
    if run.keeps_end:
        say(f"{run.name}: keeping its end")
        kept = training.kept_end()
        kept.save(run.last_step)
        kept.close()
    if run.compares_end:
        say(f"{run.name}: comparing its end")
        mine = copy_of(program.model, program.optimizer)
        kept = training.kept_end()
        kept.load(run.last_step)
        kept.close()
        found = largest_differences(mine, copy_of(program.model, program.optimizer))
        seen["differences"] = {kind: list(each) for kind, each in found.items()}
