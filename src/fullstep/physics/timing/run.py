"""All optimizer steps of a job, and what they take."""

from __future__ import annotations

from math import ceil

from fullstep.job import Job
from fullstep.ledger import Run
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
        return ceil(data.steps * data.epochs)
    if data.tokens is not None:
        useful = batch.sequence_tokens if batch.packed else batch.mean_sample_tokens
        return ceil(data.tokens * data.epochs / (rows * useful))
    if data.examples is not None:
        filled = batch.mean_sample_tokens / batch.sequence_tokens if batch.packed else 1.0
        return ceil(data.examples * data.epochs * filled / rows)
    return None


def run_time(job: Job, step_seconds: Bounds) -> Run | None:
    """Seconds of the whole run: all steps, and the forward passes of evaluation between them.

    Args:
        job: complete
        step_seconds: of one optimizer step [s]

    Returns:
        None: no data set is stated

    Valid:
        without the time of checkpoints, of starting up and of generated tokens in evaluation
    """
    steps = optimizer_steps(job)
    if steps is None:
        return None
    evaluation = evaluation_seconds(job, steps)
    return Run(optimizer_steps=steps, seconds=times(step_seconds, steps) + evaluation, evaluation_seconds=evaluation)


def evaluation_seconds(job: Job, steps: int) -> Bounds:
    """``passes * ceil(rows / (ranks * micro-batch)) * forward`` [s]; a pass every so many steps, one at the end where it does not say.

    Zero where rows are not stated, or a GPU's rates are not known.
    """
    wanted, parts = job.evaluation, compute_parts(job)
    if wanted.rows is None or parts is None:
        return Bounds(0, 0, 0)
    passes = steps // wanted.every_steps if wanted.every_steps else 1
    batches = ceil(wanted.rows / (job.layout.data_parallel * wanted.micro_batch))
    forward = times(part_seconds(parts, "forward"), wanted.micro_batch / job.batch.micro_batch)
    return times(forward, passes * batches)
