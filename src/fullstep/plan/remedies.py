"""The smallest single change that makes a worksheet fit: what leaves the training as it is before what alters it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from fullstep.ledger import Answer
from fullstep.plan.candidates import LAYOUT_DETAILS, batch_changes, keeps_training, row_splits, strategies_for
from fullstep.plan.layouts import LAYOUTS
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


def remedies(bench: Workbench, most: int = MOST) -> list[Remedy]:
    """Single changes that make the worksheet as written fit, smallest first: at most ``most`` of each kind.

    A change to a key listed under ``plan.fixed`` is not offered as one that leaves the training as it is.
    """
    unchanged = _that_fit(bench, (change for change in _keeping(bench) if bench.allows(change.changes)), False, most)
    return unchanged + _that_fit(bench, _altering(bench), True, most)


def _that_fit(bench: Workbench, offers: Iterator[_Change], alters: bool, most: int) -> list[Remedy]:
    found: list[Remedy] = []
    for offer in offers:
        if len(found) == most:
            break
        trial = bench.try_out(offer.changes)
        if isinstance(trial, Trial) and trial is not bench.as_written and trial.fits:
            if not alters and not keeps_training(bench.as_written.job, trial.job):
                continue
            stated = {key: value for key, value in trial.changes.items() if value is not None}
            found.append(Remedy(trial.changes, alters, offer.words or change_words(stated), trial.answer))
    return found


def _keeping(bench: Workbench) -> Iterator[_Change]:
    """Changes that leave the training as it is, the smallest and cheapest to speed first."""
    job = bench.as_written.job
    for key, value in free_savers(job).items():
        yield _Change({key: value}, "")
    for level in LEVELS[1:3]:
        yield _Change(dict(level.changes), "")
    ranks = job.layout.data_parallel
    share = job.batch.micro_batch * job.batch.accumulation
    for rows in reversed([rows for rows in row_splits(share * ranks, ranks, job, bench) if rows < job.batch.micro_batch]):
        yield _Change(batch_changes(rows, share), f"micro_batch {rows} with accumulation {share // rows}")
    written = LAYOUTS[job.layout.strategy].traffic
    for strategy in strategies_for(job, job.machine.nodes):
        if LAYOUTS[strategy].traffic > written:
            changes = {"layout.strategy": strategy, **dict.fromkeys(LAYOUT_DETAILS)}
            yield _Change(changes, f"{strategy}: {LAYOUTS[strategy].words}")
    for key in ("step.activation_offload", "layout.offload_optimizer", "layout.offload_parameters"):
        yield _Change({key: True}, "")
    if job.batch.accumulation == 1 and job.method.kind == "full":
        yield _Change({"optimizer.in_backward": True}, "")
    yield from _more_gpus(bench)


def _more_gpus(bench: Workbench) -> Iterator[_Change]:
    """More GPUs in the node, then more nodes, over which the same rows of a step are divided."""
    job = bench.as_written.job
    machine, batch = job.machine, job.batch
    sharded = {} if LAYOUTS[job.layout.strategy].sharded else {"layout.strategy": "fsdp", **dict.fromkeys(LAYOUT_DETAILS)}
    rows = batch.micro_batch * batch.accumulation * job.layout.data_parallel
    sizes = [(gpus, machine.nodes) for gpus in (2, 4, 8) if gpus > machine.gpus]
    sizes += [(machine.gpus, nodes) for nodes in (2, 4, 8, 16) if nodes > machine.nodes]
    for gpus, nodes in sizes:
        share, rest = divmod(rows, gpus * nodes)
        if rest:
            continue
        micro_batch = min(batch.micro_batch, share)
        while share % micro_batch:
            micro_batch -= 1
        words = f"{gpus} GPUs" if nodes == machine.nodes else f"{nodes} nodes of {gpus} GPUs"
        changes = {"machine.gpus": gpus, "machine.nodes": nodes, **sharded, **batch_changes(micro_batch, share), "layout.shards": None}
        yield _Change(changes, f"{words}, state sharded over them")


def _altering(bench: Workbench) -> Iterator[_Change]:
    """Changes that make it another training, the mildest first."""
    job = bench.as_written.job
    states = {"optimizer.state_dtype": None, "optimizer.implementation": None}
    eight_bit = _EIGHT_BIT.get(job.optimizer.name)
    if eight_bit is not None:
        yield _Change({"optimizer.name": eight_bit, **states}, f"8-bit optimizer ({eight_bit})")
        yield _Change({"optimizer.name": "paged_adamw_8bit", **states}, "8-bit optimizer in paged memory (paged_adamw_8bit)")
    if job.method.kind == "full":
        yield _Change({"method.kind": "lora", "precision.master_weights": None, **states}, "LoRA instead of all weights")
    if job.method.quantization == "none" and job.method.kind in ("full", "lora"):
        yield _Change({"method.kind": "qlora", "precision.master_weights": None, **states}, "QLoRA: a 4-bit base")
    tokens = job.batch.sequence_tokens
    for part in (2, 4, 8):
        if tokens // part >= 256:
            yield _Change({"batch.sequence_tokens": tokens // part, "batch.mean_sample_tokens": None}, f"rows of {tokens // part:,} tokens")
