"""All optimizer steps of a job, and what they take."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from fullstep.job import Job
from fullstep.ledger import Run
from fullstep.physics.checkpointing import checkpoint_seconds
from fullstep.physics.network.exposure import PhaseSeconds, exposed_seconds
from fullstep.physics.network.fabric import fabric_of
from fullstep.physics.network.traffic import step_collectives
from fullstep.physics.timing.compute import compute_parts, part_seconds
from fullstep.physics.timing.rates import times
from fullstep.quantities import Bounds


def optimizer_steps(job: Job) -> int | None:
    """Steps that the data makes: stated, or useful tokens of all epochs over useful tokens of a step, rounded up.

    Example: 400 M tokens three times over 131,072 tokens a step: ``ceil(1.2e9 / 131072)`` = 9,156 steps. Examples that are packed fill
    rows as far as their mean length goes.

    Returns:
        steps; None: no data set is stated
    """
    data, batch = job.data, job.batch
    rows = batch.micro_batch * batch.accumulation * job.layout.data_parallel
    if data.steps is not None:
        return _rounded_up(data.steps * data.epochs)
    if data.tokens is not None:
        useful = batch.sequence_tokens if batch.packed else batch.mean_sample_tokens
        return _rounded_up(data.tokens * data.epochs / (rows * useful))
    if data.examples is not None:
        filled = batch.mean_sample_tokens / batch.sequence_tokens if batch.packed else 1.0
        return _rounded_up(data.examples * data.epochs * filled / rows)
    return None


def _rounded_up(steps: float) -> int:
    """The next whole number, without the last digits of floating point: 1.1 epochs of 100 steps are 110.

    >>> _rounded_up(100 * 1.1), _rounded_up(110.01)
    (110, 111)
    """
    return ceil(steps * (1 - 1e-12))


def run_time(job: Job, step_seconds: Bounds) -> Run | None:
    """Seconds of the whole run: all steps, the forward passes of evaluation between them, and the saves that hold it up.

    Args:
        job: complete
        step_seconds: of one optimizer step [s]

    Returns:
        None: no data set is stated

    Valid:
        without the time of starting up, of generated tokens and of pipeline bubbles in evaluation; without saves where storage's rate is
        not stated
    """
    steps = optimizer_steps(job)
    if steps is None:
        return None
    evaluation = evaluation_seconds(job, steps)
    training = times(step_seconds, steps) + evaluation
    saves = checkpoint_seconds(job, training)
    seconds = training if saves is None else training + saves
    return Run(optimizer_steps=steps, seconds=seconds, evaluation_seconds=evaluation, checkpoint_seconds=saves)


def evaluation_seconds(job: Job, steps: int) -> Bounds:
    """``passes * ceil(rows / (ranks * micro-batch)) * forward`` [s]; a pass every so many steps, one at the end where it does not say.

    Forward with what its own communication adds: units that are gathered, rows and sums that are exchanged.
    Zero where rows are not stated, or a GPU's rates are not known.
    """
    wanted = job.evaluation
    passing = replace(job, batch=replace(job.batch, micro_batch=wanted.micro_batch, accumulation=1))
    if wanted.rows is None or (parts := compute_parts(passing)) is None:
        return Bounds(0, 0, 0)
    passes = steps // wanted.every_steps if wanted.every_steps else 1
    batches = ceil(wanted.rows / (job.layout.data_parallel * wanted.micro_batch))
    forward = part_seconds(parts, "forward")
    talking = [one for one in step_collectives(passing) if one.phase == "forward"]
    best, usual = (PhaseSeconds(forward[end], 0.0) for end in (0, 1))
    added = exposed_seconds(talking, fabric_of(job), usual, best) or Bounds(0, 0, 0)
    return times(forward + added, passes * batches)
