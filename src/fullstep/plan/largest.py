"""The largest micro-batch, row length, rank or model that fits, everything else as written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from fullstep.errors import Fault, InputError
from fullstep.job import Job, Worksheet
from fullstep.plan.trial import Refusal, Size, Trial, Workbench

Vary = Literal["micro_batch", "sequence_tokens", "rank", "model"]
VARIES: tuple[Vary, ...] = ("micro_batch", "sequence_tokens", "rank", "model")
_KEYS = {"micro_batch": "batch.micro_batch", "sequence_tokens": "batch.sequence_tokens", "rank": "method.rank", "model": "model.name"}
_STEPS = {"micro_batch": 1, "sequence_tokens": 64, "rank": 1}
_CEILING = 2**24


class Largest(NamedTuple):
    """What fits at most."""

    vary: Vary
    key: str
    value: int | str | None
    """the largest that fits with the reserve; None: not even the smallest does"""
    trial: Trial | None
    next_value: int | str | None
    """the next larger, which does not fit with the reserve"""
    next_trial: Trial | Refusal | None
    note: str
    """what bounds it other than memory, for people"""
    spent: int


def largest(worksheet: Worksheet, vary: Vary, size: Size, models: Sequence[tuple[str, int]] = ()) -> Largest:
    """The largest value that fits, by bisection (models: from the largest down).

    Args:
        worksheet: what is wanted
        vary: what may grow
        size: what sizes one completed job
        models: (name, parameters) of the models to try

    Raises:
        InputError: the worksheet is at fault, names no GPU, or has no rank to vary
    """
    bench = Workbench(worksheet, size)
    _check(bench.as_written.job, vary)
    if vary == "model":
        return _largest_model(bench, models)
    job = bench.as_written.job
    ceiling, note = _CEILING, ""
    positions = job.shape.maximum_positions
    if vary == "sequence_tokens" and positions is not None and positions >= job.batch.sequence_tokens:
        ceiling, note = positions, f"the model was made for rows of at most {positions:,} tokens"
    elif vary == "rank":
        ceiling, note = job.shape.hidden, "a larger rank than the model's width is no adapter any more"
    return _bisected(bench, vary, ceiling, note)


def _check(job: Job, vary: Vary) -> None:
    if job.machine.usable_bytes is None:
        raise InputError(Fault("machine.gpu", "no GPU is named", "a card of the catalogue", "Largest for which card? Add --gpu."))
    if vary == "rank" and job.method.kind == "full":
        raise InputError(Fault("method.kind", "full fine-tuning has no rank", "an adapter, like lora", "Add --method lora."))


def _changes(job: Job, vary: Vary, value: int | str) -> dict[str, object]:
    """What goes with the key: accumulation stays as it is (rows per step grow with the micro-batch), and what was said
    of another length or another model does not carry over."""
    beside: dict[Vary, dict[str, object]] = {
        "micro_batch": {"batch.global_rows": None, "batch.accumulation": job.batch.accumulation},
        "sequence_tokens": {"batch.mean_sample_tokens": None},
        "rank": {},
        "model": {"model.config": None, "method.targets": None, "method.train_modules": None},
    }
    return {_KEYS[vary]: value, **beside[vary]}


def _bisected(bench: Workbench, vary: Vary, ceiling: int, note: str) -> Largest:
    """Doubles until it does not fit, then halves the interval, in whole steps."""
    step = _STEPS[vary]
    tried: dict[int, Trial | Refusal] = {}

    def fits(count: int) -> bool:
        value = min(count * step, ceiling)
        trial = tried[count] = bench.try_out(_changes(bench.as_written.job, vary, value))
        return isinstance(trial, Trial) and trial.fits

    most = -(-ceiling // step)
    below, above = _bracket(fits, most)
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (middle, above) if fits(middle) else (below, middle)
    best, beyond = tried.get(below), tried.get(above)
    return Largest(
        vary=vary,
        key=_KEYS[vary],
        value=min(below * step, ceiling) if below else None,
        trial=best if isinstance(best, Trial) else None,
        next_value=min(above * step, ceiling) if above <= most else None,
        next_trial=beyond,
        note=note if above > most else "",
        spent=bench.spent,
    )


def _bracket(fits: Callable[[int], bool], most: int) -> tuple[int, int]:
    """(the largest count known to fit, or 0; a larger one that does not, or one beyond ``most``)."""
    below, count = 0, 1
    while fits(count):
        if count == most:
            return most, most + 1
        below, count = count, min(2 * count, most)
    return below, count


def _largest_model(bench: Workbench, models: Sequence[tuple[str, int]]) -> Largest:
    beyond: Trial | Refusal | None = None
    beyond_name: str | None = None
    for name, _ in sorted(models, key=lambda model: -model[1]):
        trial = bench.try_out(_changes(bench.as_written.job, "model", name))
        if isinstance(trial, Trial) and trial.fits:
            return Largest("model", "model.name", name, trial, beyond_name, beyond, "among the models that come with fullstep", bench.spent)
        beyond, beyond_name = trial, name
    return Largest("model", "model.name", None, None, beyond_name, beyond, "among the models that come with fullstep", bench.spent)
