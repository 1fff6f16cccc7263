"""No card is named: for every card of the catalogue the smallest number in one node that fits. Prices are not known yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fullstep.errors import Fault, UnsupportedError
from fullstep.hardware import Card, all_cards
from fullstep.job import Job
from fullstep.plan.candidates import LAYOUT_DETAILS, Found, RuledOut, as_written_level, batch_changes, row_splits
from fullstep.plan.ranking import rank
from fullstep.plan.savers import LEVELS, Changes, free_savers, level_changes
from fullstep.plan.timer import Timer
from fullstep.plan.trial import Refusal, Trial, Workbench, verdict_order

COUNTS = (1, 2, 4, 8)
"""GPUs of a node as they are usually sold"""
_RECOMPUTED = 0.25
"""share of the work that full recomputation adds: a second forward to one forward and a backward of two"""


def search_cards(bench: Workbench, timer: Timer) -> Found:
    """Each card with its smallest count that fits (or is tight) and ends in time, fewest GPUs and least memory first.

    The others are ruled out, but for those that only end too late: they are timed and sorted by :func:`card_order` as well.
    """
    found = Found([], [])
    able = able_cards(bench.as_written.job)
    without = [card for card in all_cards() if card not in able]
    if without:
        found.ruled_out.append(_without_bf16(without))
    for card in able:
        tried = _counts_of(bench, card, timer)
        sized = [trial for trial in tried if isinstance(trial, Trial)]
        chosen = min(sized, key=_promise, default=None)
        if chosen is not None and chosen.verdict != "does_not_fit":
            found.trials.append(chosen)
        else:
            closest = sized[-1] if sized else tried[0]
            found.ruled_out.append(RuledOut(f"up to {COUNTS[-1]} x {card.key}", closest, len(COUNTS), closest.changes))
    found.trials.sort(key=card_order)
    found.ruled_out.sort(key=_memory_of, reverse=True)
    return found


def able_cards(job: Job) -> list[Card]:
    """The cards of the catalogue that compute in the job's number format."""
    return [card for card in all_cards() if card.trains_bf16 or job.precision.compute != "bfloat16"]


def enough_bytes(options: Sequence[Trial]) -> int | None:
    """From which memory on any able card would do, with as many GPUs as the best option has.

    Args:
        options: what :func:`search_cards` found, best first

    Returns:
        [bytes] in all, as the driver reports it; None where a larger card does not fit either.
    """
    best = options[0]
    enough = [trial.job.machine.card for trial in options if trial.fits and trial.job.machine.gpus == best.job.machine.gpus]
    keys = {card.key for card in enough if card is not None}
    short = max((card.total_bytes for card in able_cards(best.job) if card.key not in keys), default=0)
    return min((card.total_bytes for card in enough if card is not None and card.total_bytes > short), default=None)


def _promise(trial: Trial) -> tuple[int, bool, float]:
    """The first count that fits and ends in time before others; of those that fit and do not, the one that ends first."""
    late = trial.may_be_late
    ends = trial.ending.seconds.likely if late and trial.ending is not None and trial.ending.seconds is not None else 0.0
    return verdict_order(trial.verdict), late, ends


def _counts_of(bench: Workbench, card: Card, timer: Timer) -> list[Trial | Refusal]:
    """The best on 1, 2, 4 and 8 of a card, up to the first count that fits and ends in time."""
    tried: list[Trial | Refusal] = []
    for gpus in COUNTS if bench.may_change("machine.gpus") else (bench.as_written.job.machine.gpus,):
        if tried and _hopeless(tried[-1], gpus):
            continue
        best = _best_on(bench, card, gpus)
        tried.append(timer(best) if isinstance(best, Trial) and best.verdict != "does_not_fit" else best)
        if isinstance(tried[-1], Trial) and tried[-1].fits and not tried[-1].may_be_late:
            break
    return tried


def _hopeless(fewer: Trial | Refusal, gpus: int) -> bool:
    """So many GPUs would end too late even if they divided the low bound perfectly and recomputed nothing (a quarter of the work)."""
    ending = fewer.ending if isinstance(fewer, Trial) else None
    if not isinstance(fewer, Trial) or ending is None or ending.seconds is None:
        return False
    return ending.seconds.low * (1 - _RECOMPUTED) * fewer.job.machine.gpus / gpus > ending.deadline_seconds


def _memory_of(out: RuledOut) -> int:
    return out.closest.job.machine.usable_bytes or 0 if isinstance(out.closest, Trial) else 0


def card_order(trial: Trial) -> tuple[float, ...]:
    """The key to sort cards by; smaller is better: what fits, in time, on the fewest GPUs, with the least memory."""
    machine = trial.job.machine
    return (verdict_order(trial.verdict), trial.lateness, machine.gpus, machine.usable_bytes or 0, *rank(trial))


def _best_on(bench: Workbench, card: Card, gpus: int) -> Trial | Refusal:
    """The fastest of few candidates that fits, without the free savers where it fits without; else the one that needs least."""
    machine: dict[str, object] = {"machine.gpu": card.key, "machine.gpus": gpus, **_rows(bench, gpus)}
    written = bench.as_written.job
    savers = free_savers(replace(written, machine=replace(written.machine, card=card)))
    free = {key: value for key, value in savers.items() if bench.may_change(key)}
    strategies = ("single",) if gpus == 1 else ("ddp", "fsdp")
    if not bench.may_change("layout.strategy"):
        strategies = (written.layout.strategy,)
    levels = [level for level in LEVELS[:3] if bench.allows(level_changes(level))] or [as_written_level(written)]
    least = _with(bench, {**machine, **_layout(strategies[-1]), **level_changes(levels[-1])}, free)
    if isinstance(least, Refusal) or not least.fits:
        return least
    for level in levels:
        for strategy in strategies:
            changes = {**machine, **_layout(strategy), **level_changes(level)}
            trial = _with(bench, changes, free)
            if isinstance(trial, Trial) and trial.fits:
                plain = bench.try_out(changes)
                return plain if isinstance(plain, Trial) and plain.fits else trial
    return least


def _layout(strategy: str) -> Changes:
    return {"layout.strategy": strategy, **dict.fromkeys(LAYOUT_DETAILS)}


def _rows(bench: Workbench, gpus: int) -> Changes:
    """The same rows per step where the worksheet says how many they are over all ranks; else the same rows on each GPU."""
    job = bench.as_written.job
    rows = bench.worksheet.stated("batch.global_rows")
    if not rows:
        return {}
    sizes = [size for size in row_splits(rows, gpus, job, bench) if size <= job.batch.micro_batch]
    return batch_changes(sizes[-1], rows // gpus) if sizes else {}


def _with(bench: Workbench, changes: Changes, free: Changes) -> Trial | Refusal:
    """With the free savers; without them where the combination is refused."""
    trial = bench.try_out({**changes, **free})
    return bench.try_out(changes) if isinstance(trial, Refusal) else trial


def _without_bf16(cards: list[Card]) -> RuledOut:
    fault = Fault("machine.gpu", "no arithmetic in bfloat16", "", "State precision.compute = float16 for them.")
    names = ", ".join(card.key for card in cards)
    return RuledOut(names, Refusal({}, UnsupportedError(fault)), len(cards), {})
