"""The largest micro-batch, row length, rank or model that fits, everything else as written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from fullstep.errors import Fault, InputError
from fullstep.job import Job, Worksheet, edit
from fullstep.job.keys import BY_DOTTED
from fullstep.plan.candidates import row_splits
from fullstep.plan.remedies import Remedy, remedies
from fullstep.plan.trial import Refusal, Size, Trial, Workbench

Vary = Literal["micro_batch", "sequence_tokens", "rank", "model"]
_KEYS = {"micro_batch": "batch.micro_batch", "sequence_tokens": "batch.sequence_tokens", "rank": "method.rank", "model": "model.name"}
_STEPS = {"micro_batch": 1, "sequence_tokens": 64, "rank": 1}
_CEILING = 2**24
_RANKED = ("lora", "qlora", "dora", "prefix_tuning", "bottleneck")
"""methods that have a ``method.rank``: a rank, virtual tokens, or a width"""


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
    remedies: Sequence[Remedy] = ()
    """where not even the smallest fits: single changes to it that would make it fit"""


class _Scale(NamedTuple):
    """The values that one key may take, ascending."""

    value: Callable[[int], int]
    """of the position, from 1 on"""
    most: int
    note: str
    """why there is no value beyond the last"""


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
    bench = Workbench(worksheet, size, fixed=frozenset())
    _check(bench.as_written.job, vary)
    found = _largest_model(bench, models) if vary == "model" else _bisected(bench, vary, _scale(bench, vary))
    if found.value is not None or found.next_value is None or not isinstance(found.next_trial, Trial):
        return found
    smallest = edit(worksheet, _changes(bench, vary, found.next_value))
    return found._replace(remedies=remedies(Workbench(smallest, size), most=1))


def _scale(bench: Workbench, vary: Vary) -> _Scale:
    job, step = bench.as_written.job, _STEPS[vary]
    positions = job.shape.maximum_positions
    if vary == "micro_batch" and bench.worksheet.stated("batch.global_rows"):
        rows = bench.worksheet.stated("batch.global_rows")
        splits = row_splits(rows, job.layout.data_parallel, job, bench) or [job.batch.micro_batch]
        return _Scale(lambda count: splits[count - 1], len(splits), f"batch.global_rows = {rows:,} has no more rows for a GPU")
    ceiling, note = _CEILING, ""
    if vary == "sequence_tokens" and positions is not None and positions >= job.batch.sequence_tokens:
        ceiling, note = positions, f"the model was made for rows of at most {positions:,} tokens"
    elif vary == "rank":
        ceiling, note = _ranks(job)
    return _Scale(lambda count: min(count * step, ceiling), -(-ceiling // step), note)


def _check(job: Job, vary: Vary) -> None:
    if job.machine.usable_bytes is None:
        raise InputError(Fault("machine.gpu", "no GPU is named", "a card of the catalogue", "Largest for which card? Add --gpu."))
    kind = job.method.kind
    if vary == "rank" and kind not in _RANKED:
        what = "full fine-tuning" if kind == "full" else kind
        raise InputError(Fault("method.kind", f"{what} has no rank", ", ".join(_RANKED), "For example --method lora."))


def _ranks(job: Job) -> tuple[int, str]:
    """The largest sensible ``method.rank`` of a kind, and why."""
    if job.method.kind == "prefix_tuning":
        most = int(BY_DOTTED["method.rank"].high)
        return most, f"the worksheet takes at most {most:,} virtual tokens"
    what = "a wider bottleneck" if job.method.kind == "bottleneck" else "a larger rank"
    return job.shape.hidden, f"{what} than the model's width is no adapter any more"


def _changes(bench: Workbench, vary: Vary, value: int | str) -> dict[str, object]:
    """What goes with the key. Stated rows per optimizer step stay and accumulation follows; else accumulation stays and the
    rows grow. What was said of another length or another model does not carry over."""
    keeps_rows = bench.worksheet.stated("batch.global_rows") is not None
    accumulation = None if keeps_rows else bench.as_written.job.batch.accumulation
    beside: dict[Vary, dict[str, object]] = {
        "micro_batch": {"batch.accumulation": accumulation},
        "sequence_tokens": {"batch.mean_sample_tokens": None},
        "rank": {},
        "model": {"model.config": None, "method.targets": None, "method.train_modules": None},
    }
    return {_KEYS[vary]: value, **beside[vary]}


def _bisected(bench: Workbench, vary: Vary, scale: _Scale) -> Largest:
    """Doubles until it does not fit, then halves the interval, in whole steps."""
    tried: dict[int, Trial | Refusal] = {}

    def fits(count: int) -> bool:
        trial = tried[count] = bench.try_out(_changes(bench, vary, scale.value(count)))
        return isinstance(trial, Trial) and trial.fits

    below, above = _bracket(fits, scale.most)
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (middle, above) if fits(middle) else (below, middle)
    best, beyond = tried.get(below), tried.get(above)
    return Largest(
        vary=vary,
        key=_KEYS[vary],
        value=scale.value(below) if below else None,
        trial=best if isinstance(best, Trial) else None,
        next_value=scale.value(above) if above <= scale.most else None,
        next_trial=beyond,
        note=scale.note if above > scale.most else "",
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
        trial = bench.try_out(_changes(bench, "model", name))
        if isinstance(trial, Trial) and trial.fits:
            return Largest("model", "model.name", name, trial, beyond_name, beyond, "among the models that come with fullstep", bench.spent)
        beyond, beyond_name = trial, name
    return Largest("model", "model.name", None, None, beyond_name, beyond, "among the models that come with fullstep", bench.spent)
