"""What does not fit is an answer: what ran out, how much was needed, and the smallest change that would help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Literal, NamedTuple

from fullstep.errors import UnsupportedError
from fullstep.ledger import Memory
from fullstep.offers.offer import Offer
from fullstep.plan.candidates import RuledOut
from fullstep.plan.layouts import layout_name
from fullstep.plan.remedies import Remedy
from fullstep.plan.savers import level_of
from fullstep.plan.trial import Refusal, Trial

Limit = Literal["memory", "host_memory", "time", "budget", "network", "divisibility", "support", "availability"]


class Rejection(NamedTuple):
    """Candidates that are out for one reason."""

    what: str
    limit: Limit
    needed: float | None
    """in ``unit``; of the candidate that needs least"""
    available: float | None
    unit: str
    remedy: Mapping[str, object] | None
    """worksheet keys to change; None: no single change is known"""
    changes_training: bool
    candidates: int
    detail: str
    """for people: the instant, or why it is refused"""
    level: str = ""
    """for people: the savers, where ``what`` is one level of a layout"""
    offers: tuple[Offer, ...] = ()
    """of the market, that are out for it"""
    per_hour: Decimal | None = None
    """that the cheapest of them cost, all machines together, in the currency of the worksheet"""


def rejected(as_written: Trial, ruled_out: Sequence[RuledOut], options: Sequence[Trial], helps: Sequence[Remedy]) -> list[Rejection]:
    """One record per reason; the worksheet as written comes first where it does not fit.

    Args:
        as_written: the worksheet without changes
        ruled_out: groups of candidates that the search ruled out
        options: what fits, best first
        helps: single changes that make the worksheet as written fit
    """
    records: list[Rejection] = []
    if as_written.verdict == "does_not_fit":
        first = helps[0] if helps else None
        name = f"as written: {layout_name(as_written.job.layout)}"
        records.append(_of_trial(name, as_written, 1, first.changes if first else None, first is not None and first.changes_training))
    for group in ruled_out:
        if isinstance(group.closest, Refusal):
            records.append(_of_refusal(group, group.closest)._replace(level=group.level, offers=group.offers, per_hour=group.per_hour))
            continue
        remedy: Mapping[str, object] | None = _smallest_change(group.closest, options)
        alters = remedy is None and bool(helps) and helps[0].changes_training
        if remedy is None and helps:
            remedy = helps[0].changes
        record = _of_trial(group.what, group.closest, group.candidates, remedy, alters)
        records.append(record._replace(level=group.level, offers=group.offers, per_hour=group.per_hour))
    return records


def rejection_of(what: str, out: Trial, options: Sequence[Trial]) -> Rejection:
    """The record of a single option that turns out not to fit.

    Args:
        what: it is, in words
        out: does not fit
        options: what fits, best first
    """
    return _of_trial(what, out, 1, _smallest_change(out, options), False)


def _of_trial(what: str, trial: Trial, count: int, remedy: Mapping[str, object] | None, alters: bool) -> Rejection:
    memory, host = trial.answer.memory, trial.answer.host
    if memory.verdict != "does_not_fit":
        available = trial.job.machine.host_memory_bytes
        return Rejection(what, "host_memory", host.memory_peak_bytes, available, "bytes", remedy, alters, count, f"at {host.at}")
    needed, at = _bottleneck(memory)
    return Rejection(what, "memory", needed, memory.usable_bytes, "bytes", remedy, alters, count, f"at {at}")


def _bottleneck(memory: Memory) -> tuple[float, str]:
    """[bytes] and the instant of what exceeds the card: the step, or the largest other peak."""
    usable = memory.usable_bytes or 0
    if memory.needed_bytes.low > usable:
        return memory.needed_bytes.likely, memory.peak_at.replace("_", " ")
    peaks = {name: peak for name, peak in memory.other_peaks._asdict().items() if peak is not None}
    worst = max(peaks, key=lambda name: peaks[name])
    return peaks[worst], worst


def _of_refusal(group: RuledOut, refusal: Refusal) -> Rejection:
    fault = refusal.error.faults[0]
    divisibility = not isinstance(refusal.error, UnsupportedError) and "divid" in f"{fault.found} {fault.allowed}"
    limit: Limit = "divisibility" if divisibility else "support"
    return Rejection(group.what, limit, None, None, "", None, False, group.candidates, f"{fault.found}. {fault.remedy}".strip())


def _smallest_change(out: Trial, options: Sequence[Trial]) -> dict[str, object] | None:
    """The fewest settings that turn a candidate into one that fits; of equal ones the better option's.

    A candidate that was ruled out has every free saver and the fewest rows: an option with more rows fits with as few, too,
    and an option with less recomputation or without offload fits with them.
    """
    changes = [_difference(out, option) for option in options if option.fits]
    return min(changes, key=len, default=None)


def _difference(out: Trial, better: Trial) -> dict[str, object]:
    mine, theirs = settings_of(out), settings_of(better)
    changes = {key: theirs[key] for key in theirs if theirs[key] not in (mine[key], False)}
    if level_of(out.job)[1] >= level_of(better.job)[1]:
        changes.pop("step.activation_checkpointing", None)
    return changes


def settings_of(trial: Trial) -> dict[str, object]:
    """What a search varies and a remedy may name, but for the rows."""
    layout, step, machine = trial.job.layout, trial.job.step, trial.job.machine
    return {
        "machine.gpu": None if machine.card is None else machine.card.key,
        "machine.gpus": machine.gpus,
        "machine.nodes": machine.nodes,
        "layout.strategy": layout.strategy,
        "layout.offload_optimizer": layout.offload_optimizer,
        "layout.offload_parameters": layout.offload_parameters,
        "step.activation_checkpointing": step.activation_checkpointing,
        "step.activation_offload": step.activation_offload,
        "optimizer.in_backward": trial.job.optimizer.in_backward,
    }
