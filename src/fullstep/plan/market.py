"""No card is named: for every card of the catalogue the smallest number in one node that fits. Prices are not known yet."""

from __future__ import annotations

from dataclasses import replace

from fullstep.errors import Fault, UnsupportedError
from fullstep.hardware import Card, all_cards
from fullstep.plan.candidates import LAYOUT_DETAILS, Found, RuledOut, batch_changes
from fullstep.plan.ranking import rank
from fullstep.plan.savers import LEVELS, Changes, free_savers, level_changes
from fullstep.plan.trial import Refusal, Trial, Workbench

COUNTS = (1, 2, 4, 8)
"""GPUs of a node as they are usually sold"""


def search_cards(bench: Workbench) -> Found:
    """Each card with its smallest count that fits, fewest GPUs and least memory first; cards of which no eight fit are ruled out."""
    found = Found([], [])
    needs_bf16 = bench.as_written.job.precision.compute == "bfloat16"
    without = [card for card in all_cards() if needs_bf16 and not card.trains_bf16]
    if without:
        found.ruled_out.append(_without_bf16(without))
    for card in all_cards():
        if card in without:
            continue
        closest: Trial | Refusal | None = None
        for gpus in COUNTS:
            trial = _best_on(bench, card, gpus)
            if isinstance(trial, Trial) and trial.fits:
                found.trials.append(trial)
                break
            if isinstance(trial, Trial) or closest is None:
                closest = trial
        else:
            if closest is not None:
                found.ruled_out.append(RuledOut(f"up to {COUNTS[-1]} x {card.key}", closest, len(COUNTS), closest.changes))
    found.trials.sort(key=lambda trial: (trial.job.machine.gpus, trial.job.machine.usable_bytes or 0, rank(trial)))
    return found


def _best_on(bench: Workbench, card: Card, gpus: int) -> Trial | Refusal:
    """The fastest of few candidates that fits, without the free savers where it fits without; else the one that needs least."""
    machine: dict[str, object] = {"machine.gpu": card.key, "machine.gpus": gpus, **_rows(bench, gpus)}
    written = bench.as_written.job
    free = free_savers(replace(written, machine=replace(written.machine, card=card)))
    strategies = ("single",) if gpus == 1 else ("ddp", "fsdp")
    least = _with(bench, {**machine, **_layout(strategies[-1]), **level_changes(LEVELS[2])}, free)
    if isinstance(least, Refusal) or not least.fits:
        return least
    for level in LEVELS[:3]:
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
    share, rest = divmod(rows, gpus)
    if rest:
        return {}
    micro_batch = next(size for size in range(min(job.batch.micro_batch, share), 0, -1) if share % size == 0)
    return batch_changes(micro_batch, share)


def _with(bench: Workbench, changes: Changes, free: Changes) -> Trial | Refusal:
    """With the free savers; without them where the combination is refused."""
    trial = bench.try_out({**changes, **free})
    return bench.try_out(changes) if isinstance(trial, Refusal) else trial


def _without_bf16(cards: list[Card]) -> RuledOut:
    fault = Fault("machine.gpu", "no arithmetic in bfloat16", "", "State precision.compute = float16 for them.")
    names = ", ".join(card.key for card in cards)
    return RuledOut(names, Refusal({}, UnsupportedError(fault)), len(cards), {})
