"""Every sensible layout x saver x micro-batch of one machine, pruned by what is monotone.

More recomputation and fewer rows never need more memory, so each layout is asked first with the most savers and the fewest
rows: where that does not fit, the whole layout is ruled out by one estimate. Where it fits, the largest micro-batch of each
level of savers is found by bisection.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import lru_cache
from typing import NamedTuple

from fullstep.errors import Fault, InputError
from fullstep.job import Job
from fullstep.job.job import ZERO_STRATEGIES
from fullstep.job.keys import BY_DOTTED
from fullstep.offers.offer import Offer
from fullstep.plan.layouts import LAYOUTS, layout_name, strategy_words
from fullstep.plan.savers import LEVELS, Changes, Level, as_written_level, free_savers, level_changes
from fullstep.plan.timer import Timer
from fullstep.plan.trial import Refusal, Trial, Workbench

LAYOUT_DETAILS = tuple(
    f"layout.{name}"
    for name in (
        "implementation", "shards", "reshard_after_forward", "sync_every_micro_batch",
        "bucket_bytes", "prefetch_units", "max_live_parameters", "loading",
    )
)  # fmt: skip
"""what is said for one strategy and means nothing, or another thing, for the next"""

_LARGEST_MICRO_BATCH = int(BY_DOTTED["batch.micro_batch"].high)
"""the worksheet takes no larger one"""

_UNNOTICED = 0.01
"""of the time per token, that leaving out a saver may cost"""

_OFFERED: dict[str, frozenset[str]] = {
    "unsloth": frozenset({"single", "ddp"}),
    "torchtune": frozenset({"single", "ddp", "fsdp"}),
    "torchtitan": frozenset({"single", "ddp", "fsdp", "fsdp_grad_op", "hsdp"}),
    "litgpt": frozenset({"single", "ddp", "fsdp"}),
    "megatron": frozenset({"single", "ddp", "zero1"}),
    "deepspeed": frozenset({"single", "ddp", "zero1", "zero2", "zero3"}),
    "fsdp_qlora": frozenset({"single", "ddp", "fsdp"}),
    "fms_acceleration": frozenset({"single", "ddp", "fsdp", "zero2", "zero3"}),
}
"""strategies that a framework brings; frameworks that are not listed bring all of them"""
DIVIDING = frozenset(("transformers", "axolotl", "torchtitan", "megatron", "deepspeed", "torch"))
"""frameworks that bring tensor and context parallelism"""


class RuledOut(NamedTuple):
    """Candidates that share the reason why they are out."""

    what: str
    closest: Trial | Refusal
    """the one that needs least, or the one that was refused"""
    candidates: int
    changes: Mapping[str, object]
    """what makes them different from the worksheet as written"""
    level: str = ""
    """the savers, where ``what`` names one level of a layout"""
    offers: tuple[Offer, ...] = ()
    """of the market, that are out for it"""
    per_hour: Decimal | None = None
    """that the cheapest of them cost, all machines together, in the currency of the worksheet"""


class Found(NamedTuple):
    """What a search over one machine found."""

    trials: list[Trial]
    ruled_out: list[RuledOut]


def strategies_for(job: Job, nodes: int) -> list[str]:
    """Strategies worth trying on that many nodes, in order of traffic; the one that is written is always among them.

    layer_split is tried only where it is written. One GPU needs no sharding, but ZeRO is how optimizers are offloaded there.
    """
    alone = ranks_on(job, nodes) * job.layout.context == 1  # state is divided among context ranks too
    names = {"single", "zero2", "zero3"} if alone else set(LAYOUTS) - {"single", "layer_split", "hsdp"}
    if nodes > 1 and job.machine.gpus > 1:
        names.add("hsdp")
    names &= _OFFERED.get(job.step.framework, frozenset(LAYOUTS))
    if nodes == job.machine.nodes:
        names.add(job.layout.strategy)
    return [name for name in LAYOUTS if name in names]


def ranks_on(job: Job, nodes: int) -> int:
    """Data-parallel ranks on that many nodes of the job's machine: its GPUs by the degrees in which it is cut."""
    layout = job.layout
    return max(1, job.machine.gpus * nodes // (layout.tensor * layout.pipeline * layout.context))


def search_machine(bench: Workbench, nodes: int) -> Found:
    """All layouts on ``nodes`` nodes of the worksheet's machine."""
    found = Found([], [])
    job = bench.as_written.job
    for strategy in strategies_for(job, nodes):
        changes: dict[str, object] = {} if nodes == job.machine.nodes else {"machine.nodes": nodes}
        if strategy != job.layout.strategy:
            changes |= {"layout.strategy": strategy, **dict.fromkeys(LAYOUT_DETAILS)}
        if bench.exhausted or not bench.allows({key: value for key, value in changes.items() if value is not None}):
            continue
        trials, ruled_out = _search_layout(bench, changes, nodes, strategy)
        found.trials.extend(trials)
        found.ruled_out.extend(ruled_out)
    return found


def row_splits(rows: int, ranks: int, job: Job, bench: Workbench) -> list[int]:
    """Micro-batches that keep ``rows`` per optimizer step over ``ranks`` data-parallel ranks; ascending; empty: none does.

    Of those that no card could hold only the smallest is kept: it tells how much would be needed.
    """
    if rows % ranks:
        return []
    share, most = rows // ranks, _most_rows(job)
    sizes = list(divisors(share, max(most, job.batch.micro_batch)))
    if not bench.may_change("batch.micro_batch"):
        sizes = [size for size in sizes if size == job.batch.micro_batch]
    if not bench.may_change("batch.accumulation"):
        sizes = [size for size in sizes if share // size == job.batch.accumulation]
    return [size for size in sizes if size <= most] or sizes[:1]


@lru_cache(maxsize=256)
def divisors(number: int, most: int) -> Sequence[int]:
    """Divisors up to ``most``, ascending.

    >>> divisors(12, 12), divisors(12, 5)
    ([1, 2, 3, 4, 6, 12], [1, 2, 3, 4])
    """
    low = [size for size in range(1, min(most, math.isqrt(number)) + 1) if number % size == 0]
    return low + [high for size in reversed(low) if size * size != number and (high := number // size) <= most]


def _most_rows(job: Job) -> int:
    """Rows whose embeddings alone, at one byte per element, fill the card: no micro-batch beyond that can fit."""
    usable = job.machine.usable_bytes
    rows = _LARGEST_MICRO_BATCH if usable is None else usable // (job.batch.sequence_tokens * job.shape.hidden)
    return max(1, min(_LARGEST_MICRO_BATCH, rows))


def batch_changes(micro_batch: int, rows_per_rank: int) -> dict[str, object]:
    """The micro-batch with the accumulation that it needs."""
    return {"batch.micro_batch": micro_batch, "batch.accumulation": rows_per_rank // micro_batch}


def keeps_training(first: Job, second: Job) -> bool:
    """The number formats in which one trains are the same: sharding by ZeRO brings master weights, others do not."""
    names = ("weights", "compute", "adapters", "master_weights")
    same = all(getattr(first.precision, name) == getattr(second.precision, name) for name in names)
    return same and first.optimizer.state_dtype == second.optimizer.state_dtype


def _search_layout(bench: Workbench, changes: Changes, nodes: int, strategy: str) -> Found:
    """One layout: its levels of savers from the fastest on, each with its largest micro-batch."""
    written = bench.as_written.job
    ranks = 1 if strategy in ("single", "layer_split") else ranks_on(written, nodes)
    rows = written.batch.micro_batch * written.batch.accumulation * written.layout.data_parallel
    splits = row_splits(rows, ranks, written, bench)
    words = strategy_words(strategy, written.machine.gpus * nodes)
    if strategy == "single":
        words = layout_name(replace(written.layout, strategy="single"))
    on = "" if nodes == written.machine.nodes else f", {nodes} node{'s' if nodes > 1 else ''}"
    what = words + on
    if not splits:
        return Found([], [RuledOut(what, Refusal(changes, indivisible(rows, ranks)), 1, changes)])
    base = bench.try_out({**changes, **batch_changes(splits[0], rows // ranks)})
    if isinstance(base, Refusal):
        return Found([], [RuledOut(what, base, 1, changes)])
    if not keeps_training(written, base.job):
        return Found([], [])
    what = layout_name(base.job.layout) + on
    sharing = ranks * written.layout.context
    levels = [level for level in LEVELS if _sensible(level, strategy, written, sharing) and bench.allows(level_changes(level))]
    free = {key: value for key, value in free_savers(base.job).items() if bench.may_change(key)}
    return _search_levels(bench, _Layout(what, changes, rows // ranks, splits, free), levels or [as_written_level(written)])


class _Layout(NamedTuple):
    what: str
    changes: Changes
    rows_per_rank: int
    splits: Sequence[int]
    free: dict[str, object]

    def rows_for(self, level: Level) -> Sequence[int]:
        """Micro-batches that a level takes: all rows at once where the optimizer steps inside backward."""
        return [self.rows_per_rank] if level.in_backward and self.rows_per_rank in self.splits else self.splits

    def with_level(self, level: Level, micro_batch: int) -> dict[str, object]:
        return {**self.changes, **batch_changes(micro_batch, self.rows_per_rank), **level_changes(level)}


def _search_levels(bench: Workbench, layout: _Layout, levels: Sequence[Level]) -> Found:
    found = Found([], [])
    bottoms = [levels[-1], *(level for level in levels[:-1] if level.in_backward)]
    least = [_try_free(bench, layout.with_level(level, layout.rows_for(level)[0]), layout.free) for level in bottoms]
    sized = [trial for trial in least if isinstance(trial, Trial)]
    if sized and all(trial.verdict == "does_not_fit" for trial in sized):
        closest = min(sized, key=lambda trial: trial.answer.memory.needed_bytes.likely)
        found.ruled_out.append(RuledOut(layout.what, closest, len(levels) * len(layout.splits), layout.changes))
        return found
    for level in levels:
        if (level.offload or level.in_backward) and any(trial.fits for trial in found.trials):
            break
        trial = _try_free(bench, layout.with_level(level, layout.rows_for(level)[0]), layout.free)
        if isinstance(trial, Refusal) or trial.verdict == "does_not_fit":
            what = f"{layout.what}, {level.words}"
            found.ruled_out.append(RuledOut(what, trial, len(layout.rows_for(level)), trial.changes, level.words))
            continue
        best = _largest_rows(bench, layout, level, trial)
        found.trials.append(best)
        if best.fits and best.job.batch.micro_batch == layout.splits[-1]:
            break
    return found


def _largest_rows(bench: Workbench, layout: _Layout, level: Level, smallest: Trial) -> Trial:
    """The largest micro-batch with the verdict that the smallest one has, by bisection over the divisors."""
    splits = layout.rows_for(level)
    best, low, high = smallest, 0, len(splits) - 1
    while low < high and not bench.exhausted:
        middle = (low + high + 1) // 2
        trial = _try_free(bench, layout.with_level(level, splits[middle]), layout.free)
        if isinstance(trial, Trial) and trial.verdict == smallest.verdict:
            best, low = trial, middle
        else:
            high = middle - 1
    return best


def _try_free(bench: Workbench, changes: Changes, free: dict[str, object]) -> Trial | Refusal:
    """With the free savers; those that this combination does not take are left out, and stay out for the layout."""
    trial = bench.try_out({**changes, **free})
    if isinstance(trial, Trial) or not free:
        return trial
    for key in list(free):
        if isinstance(bench.try_out({**changes, key: free[key]}), Refusal):
            del free[key]
    return bench.try_out({**changes, **free})


def trimmed(bench: Workbench, trial: Trial, timer: Timer) -> Trial:
    """The same option without the free savers that it does not need, neither to fit nor for its speed: fewer things to change."""
    most = (trial.seconds_per_token or math.inf) * (1 + _UNNOTICED)
    for key in ("step.expandable_segments", "step.attention", "optimizer.implementation", "step.loss"):
        if key in trial.changes and not bench.exhausted:
            lighter = bench.try_out({name: value for name, value in trial.changes.items() if name != key})
            if not isinstance(lighter, Trial) or lighter.verdict != trial.verdict:
                continue
            lighter = timer(lighter)
            if (lighter.seconds_per_token or 0.0) <= most and not (lighter.may_be_late and not trial.may_be_late):
                trial = lighter
    return trial


def _sensible(level: Level, strategy: str, written: Job, ranks: int) -> bool:
    """ZeRO offloads optimizers alone, FSDP only together with parameters; on one GPU ZeRO is there for nothing else.

    A step inside backward frees gradients as they appear, which the reductions of DDP and ZeRO do not allow.
    """
    if level.in_backward:
        return written.method.kind == "full" and strategy in ("single", "fsdp", "layer_split")
    if level.offload == 2:
        return strategy in ZERO_STRATEGIES
    if level.offload == 3:
        return strategy in ("zero3", "fsdp", "hsdp")
    return not (ranks == 1 and strategy in ZERO_STRATEGIES)


def indivisible(rows: int, ranks: int) -> InputError:
    """Rows of an optimizer step that so many ranks cannot share."""
    return InputError(Fault("batch", f"{rows} rows per optimizer step cannot be divided over {ranks} ranks", f"a multiple of {ranks}"))


def node_counts(job: Job) -> Iterator[int]:
    """Nodes to try, ascending: one, as written, and doubling up to ``goal.max_nodes``, which also holds where it is below those written."""
    most = job.machine.nodes if "machine.nodes" in job.fixed else job.goal.max_nodes or job.machine.nodes
    counts = {1, min(job.machine.nodes, most), most}
    count = 1
    while count < most:
        counts.add(count)
        count *= 2
    yield from sorted(counts)
