"""The smallest single change that makes a worksheet fit: what leaves the training as it is before what alters it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fullstep.hardware import all_cards
from fullstep.job import Job
from fullstep.ledger import Answer
from fullstep.plan.candidates import DIVIDING, LAYOUT_DETAILS, batch_changes, divisors, keeps_training, row_splits, strategies_for
from fullstep.plan.layouts import LAYOUTS, strategy_words
from fullstep.plan.savers import LEVELS, Changes, change_words, free_savers
from fullstep.plan.trial import Trial, Workbench

MOST = 4
"""remedies of each kind that are worth showing"""


_EIGHT_BIT = {"adamw": "adamw_8bit", "adam": "adamw_8bit", "lion": "lion_8bit", "paged_adamw": "paged_adamw_8bit"}


class Remedy(NamedTuple):
    """A change that makes it fit."""

    changes: Changes
    """worksheet keys and their new values; None takes a key out"""
    changes_training: bool
    words: str
    answer: Answer


class _Change(NamedTuple):
    changes: dict[str, object]
    words: str
    kind: str = ""
    """of several changes of one kind only the first that fits is offered"""


def remedies(bench: Workbench, most: int = MOST) -> list[Remedy]:
    """Single changes that make the worksheet as written fit, smallest first: at most ``most`` of each kind.

    No change to a key listed under ``plan.fixed`` is offered.
    """
    unchanged = _that_fit(bench, _keeping(bench), False, most)
    return unchanged + _that_fit(bench, _with_savers(bench, _altering(bench)), True, most)


def _that_fit(bench: Workbench, offers: Iterator[_Change], alters: bool, most: int) -> list[Remedy]:
    found: list[Remedy] = []
    kinds: set[str] = set()
    for offer in offers:
        if len(found) == most or bench.exhausted:
            break
        if offer.kind and offer.kind in kinds:
            continue
        trial = bench.try_out(offer.changes)
        if not isinstance(trial, Trial) or trial is bench.as_written or not trial.fits:
            continue
        if alters or keeps_training(bench.as_written.job, trial.job):
            kinds.add(offer.kind)
            found.append(Remedy(trial.changes, alters, offer.words or change_words(trial.changes), trial.answer))
    return found


def _with_savers(bench: Workbench, offers: Iterator[_Change]) -> Iterator[_Change]:
    """Each change alone; then, where the savers alone do not help, together with them: more to do, but they alter nothing."""
    savers = _all_savers(bench)
    alone = bench.try_out(savers)
    enough = isinstance(alone, Trial) and alone.fits
    for offer in offers:
        yield offer._replace(kind=offer.words)
        if not enough:
            yield _Change({**offer.changes, **savers}, f"{offer.words}, and {change_words(bench.needed(savers))}", offer.words)


def _all_savers(bench: Workbench) -> dict[str, object]:
    """Full recomputation and the free savers, as far as they may change."""
    job = bench.as_written.job
    savers = {key: value for key, value in free_savers(job).items() if key != "optimizer.implementation"}
    if not (job.optimizer.in_backward or job.step.activation_offload):
        savers = {**LEVELS[2].changes, **savers}
    return {key: value for key, value in savers.items() if bench.may_change(key)}


def _keeping(bench: Workbench) -> Iterator[_Change]:
    """Changes that leave the training as it is, the smallest and cheapest to speed first."""
    job = bench.as_written.job
    for key, value in free_savers(job).items():
        yield _Change({key: value}, "")
    for level in LEVELS[1:3]:
        yield _Change(dict(level.changes), "")
    ranks = job.layout.data_parallel
    share = job.batch.micro_batch * job.batch.accumulation
    rows = _largest_smaller_split(bench, share, row_splits(share * ranks, ranks, job, bench))
    if rows is not None:
        yield _Change(batch_changes(rows, share), f"micro_batch {rows} with accumulation {share // rows}")
    yield _Change(_all_savers(bench), "")
    written = LAYOUTS[job.layout.strategy].traffic
    for strategy in strategies_for(job, job.machine.nodes):
        if LAYOUTS[strategy].traffic > written:
            changes = {"layout.strategy": strategy, **dict.fromkeys(LAYOUT_DETAILS)}
            words = strategy_words(strategy, job.machine.gpus * job.machine.nodes)
            yield _Change(changes, f"layout.strategy = {strategy} ({words})")
    yield from _higher_degrees(bench)
    for key in ("step.activation_offload", "layout.offload_optimizer", "layout.offload_parameters"):
        yield _Change({key: True}, "")
    if job.batch.accumulation == 1 and job.method.kind == "full":
        yield _Change({"optimizer.in_backward": True}, "")
    yield from _more_gpus(bench)
    yield from _larger_card(bench)


def _largest_smaller_split(bench: Workbench, share: int, splits: Sequence[int]) -> int | None:
    """The largest micro-batch below the written one that fits, by bisection: fewer rows never need more memory."""
    smaller = [rows for rows in splits if rows < bench.as_written.job.batch.micro_batch]

    def is_too_large(rows: int) -> bool:
        trial = bench.try_out(batch_changes(rows, share))
        return not (isinstance(trial, Trial) and trial.fits)

    count = bisect_left(smaller, True, key=is_too_large)
    return smaller[count - 1] if count else None


def _higher_degrees(bench: Workbench) -> Iterator[_Change]:
    """Rows or layers divided among more GPUs of a node, at the same rows per optimizer step, alone and with all savers; of each the
    smallest that fits."""
    job, savers = bench.as_written.job, _all_savers(bench)
    rows, cut = job.batch.micro_batch * job.batch.accumulation, job.layout.tensor * job.layout.context
    for name in ("context", "tensor") if job.step.framework in DIVIDING else ():
        written = getattr(job.layout, name)
        for factor in (2, 4, 8):
            degree = written * factor
            if job.layout.data_parallel % factor == 0 and cut * factor <= job.machine.gpus:
                changes = {f"layout.{name}": degree, **batch_changes(job.batch.micro_batch, rows * factor)}
                words = f"layout.{name} = {degree}, batch.accumulation = {changes['batch.accumulation']}"
                yield _Change(changes, words, name)
                yield _Change({**changes, **savers}, f"{words}, and {change_words(bench.needed(savers))}", name)


def _more_gpus(bench: Workbench) -> Iterator[_Change]:
    """More GPUs in the node, then more nodes, over which the same rows of a step are divided."""
    job = bench.as_written.job
    rows = job.batch.micro_batch * job.batch.accumulation * job.layout.data_parallel
    for gpus, nodes in _larger_machines(job):
        share, rest = divmod(rows, gpus * nodes)
        if not rest:
            micro_batch = divisors(share, job.batch.micro_batch)[-1]
            changes = {**_machine(job, gpus, nodes), **batch_changes(micro_batch, share)}
            yield _Change(changes, f"{_machine_words(gpus, nodes)}, state sharded over them")


def _larger_machines(job: Job) -> list[tuple[int, int]]:
    machine = job.machine
    sizes = [(gpus, machine.nodes) for gpus in (2, 4, 8) if gpus > machine.gpus]
    return sizes + [(machine.gpus, nodes) for nodes in (2, 4, 8, 16) if nodes > machine.nodes and machine.gpus >= 4]


def _machine(job: Job, gpus: int, nodes: int) -> dict[str, object]:
    sharded = {} if LAYOUTS[job.layout.strategy].sharded else {"layout.strategy": "fsdp", **dict.fromkeys(LAYOUT_DETAILS)}
    return {"machine.gpus": gpus, "machine.nodes": nodes, **sharded, "layout.shards": None}


def _machine_words(gpus: int, nodes: int) -> str:
    return f"{gpus} GPUs" if nodes == 1 else f"{nodes} nodes of {gpus} GPUs"


def _larger_card(bench: Workbench) -> Iterator[_Change]:
    """The card of the same maker with the least memory on which it fits as it is written."""
    job = bench.as_written.job
    mine = job.machine.card
    if mine is None:
        return
    larger = (card for card in all_cards() if card.vendor == mine.vendor and card.total_bytes > mine.total_bytes)
    for card in sorted(larger, key=lambda card: (card.total_bytes, card.key)):
        changes: dict[str, object] = {"machine.gpu": card.key, "machine.gpu_memory_gib": None, "machine.link": None}
        trial = bench.try_out(changes)
        if isinstance(trial, Trial) and trial.fits:
            yield _Change(changes, f"a card with more memory ({card.key})")
            return


def _altering(bench: Workbench) -> Iterator[_Change]:
    """Changes that make it another training, the mildest first."""
    job = bench.as_written.job
    states = {"optimizer.state_dtype": None, "optimizer.implementation": None}
    eight_bit = _EIGHT_BIT.get(job.optimizer.name)
    if eight_bit is not None:
        yield _Change({"optimizer.name": eight_bit, **states}, f"8-bit optimizer ({eight_bit})")
        yield _Change({"optimizer.name": "paged_adamw_8bit", **states}, "8-bit optimizer in paged memory (paged_adamw_8bit)")
    rows = job.batch.micro_batch * job.batch.accumulation * job.layout.data_parallel
    for gpus, nodes in _larger_machines(job):
        if rows % (gpus * nodes):
            pass_rows = job.batch.micro_batch * gpus * nodes
            accumulation = -(-rows // pass_rows)
            changes = {**_machine(job, gpus, nodes), "batch.global_rows": None, "batch.accumulation": accumulation}
            makes = f"which makes {accumulation * pass_rows} rows per optimizer step"
            yield _Change(changes, f"{_machine_words(gpus, nodes)}, state sharded over them, {makes}")
    if job.method.kind == "full":
        yield _Change({"method.kind": "lora", "precision.master_weights": None, **states}, "LoRA instead of all weights")
    if not job.method.is_quantized and job.method.kind in ("full", "lora"):
        yield _Change({"method.kind": "qlora", "precision.master_weights": None, **states}, "QLoRA: a 4-bit base")
    tokens = job.batch.sequence_tokens
    for part in (2, 4, 8):
        if tokens // part >= 256:
            yield _Change({"batch.sequence_tokens": tokens // part, "batch.mean_sample_tokens": None}, f"rows of {tokens // part:,} tokens")
