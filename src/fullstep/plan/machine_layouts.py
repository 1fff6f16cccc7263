"""The fastest layout that fits on machines of one kind, found with few estimates: a market has more than a hundred kinds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import NamedTuple

from fullstep.hardware import Card
from fullstep.job import Job
from fullstep.physics.network.required import EXPOSED_SHARE
from fullstep.plan.candidates import LAYOUT_DETAILS, batch_changes, indivisible, keeps_training, row_splits, strategies_for
from fullstep.plan.savers import LEVELS, Changes, Level, as_written_level, free_savers, level_changes
from fullstep.plan.timer import Timer, exposed_share
from fullstep.plan.trial import Refusal, Trial, Workbench, verdict_order

_ON_GPU = LEVELS[:3]
"""nothing leaves the GPU"""
_LAST_RESORTS = LEVELS[3:]
"""a step inside backward, and offloads"""
_TRIED = ("single", "ddp", "zero2", "fsdp_grad_op", "hsdp", "fsdp")
"""by traffic; ZeRO-1 lies between, and ZeRO-3 is asked where parameters are offloaded"""


class Kind(NamedTuple):
    """Machines that a search cannot tell apart."""

    cards: tuple[Card, ...]
    """that one may have: several where the form is not said"""
    gpus: int
    nodes: int
    network_gbit_s: float | None
    rdma: bool | None

    @property
    def words(self) -> str:
        """``2 nodes of 8 x H100-PCIE or H100-SXM joined by 3,200 Gbit/s``."""
        here = f"{self.gpus} x {' or '.join(card.key for card in self.cards)}"
        joined = "" if self.network_gbit_s is None else f" joined by {self.network_gbit_s:,.0f} Gbit/s"
        return here if self.nodes == 1 else f"{self.nodes} nodes of {here}{joined}"

    def changes(self, card: Card) -> dict[str, object]:
        """The machine as worksheet keys, with one of the cards that it may have."""
        found: dict[str, object] = {"machine.gpu": card.key, "machine.gpus": self.gpus, "machine.nodes": self.nodes}
        if self.nodes > 1 and self.network_gbit_s is not None:
            found |= {"machine.network_gbit_s": self.network_gbit_s, "machine.rdma": self.rdma}
        return found


class _Place(NamedTuple):
    """A kind of machine in a search."""

    bench: Workbench
    machine: Mapping[str, object]
    """its worksheet keys"""
    job: Job
    """the worksheet's, on it"""
    strategies: Sequence[str]
    levels: Sequence[Level]
    """with nothing off the GPU, from the fastest on"""
    free: Mapping[str, object]
    rows: Sequence[tuple[int, int]]
    """(micro-batch, rows per rank), ascending"""

    def trial(self, strategy: str, level: Level, rows: tuple[int, int] | None = None) -> Trial | Refusal:
        """One candidate, with all free savers."""
        layout = {"layout.strategy": strategy, **dict.fromkeys(LAYOUT_DETAILS)}
        changes: Changes = {**self.machine, **layout, **batch_changes(*(rows or self.rows[0])), **level_changes(level)}
        tried = self.bench.try_out({**changes, **self.free})
        return self.bench.try_out(changes) if isinstance(tried, Refusal) else tried


def best_on(bench: Workbench, timer: Timer, kind: Kind, card: Card) -> Trial | Refusal:
    """The fastest of the candidates that fit, timed; else the one that is tight, else the one that needs least, or why all are refused.

    Args:
        bench: of the worksheet, which names no machine
        timer: times what fits
        kind: of the machine
        card: of those that it may have
    """
    place = _place(bench, kind, card)
    if isinstance(place, Refusal):
        return place
    found = list(_candidates(place, timer))
    fitting = [trial for trial in found if isinstance(trial, Trial) and trial.fits]
    if fitting:
        return min(fitting, key=lambda trial: (trial.may_be_late, trial.seconds_per_token or inf))
    closest = min((trial for trial in found if isinstance(trial, Trial)), key=_need, default=None)
    if closest is None:
        return next(trial for trial in found if isinstance(trial, Refusal))
    return timer(closest) if closest.verdict != "does_not_fit" else closest


def _need(trial: Trial) -> tuple[int, float]:
    return verdict_order(trial.verdict), trial.answer.memory.needed_bytes.likely


def _place(bench: Workbench, kind: Kind, card: Card) -> _Place | Refusal:
    written, machine = bench.as_written.job, kind.changes(card)
    if bench.worksheet.stated("machine.host_memory_gib") is not None:
        machine["machine.host_memory_gib"] = None  # each offer brings its own
    gpus = kind.gpus * kind.nodes
    job = replace(written, machine=replace(written.machine, card=card, gpus=kind.gpus, nodes=kind.nodes))
    names = [name for name in _TRIED if name in strategies_for(job, kind.nodes) and (name == "single") is (gpus == 1)]
    if not bench.may_change("layout.strategy") or not names:
        names = [written.layout.strategy]
    savers = {key: value for key, value in free_savers(job).items() if bench.may_change(key)}
    layout = job.layout
    ranks = max(1, gpus // (layout.tensor * layout.pipeline * layout.context))
    rows = _rows(bench, ranks)
    levels = [level for level in _ON_GPU if bench.allows(level_changes(level))] or [as_written_level(written)]
    return _Place(bench, machine, job, names, levels, savers, rows) if rows else Refusal(machine, indivisible(written.rows_per_step, ranks))


def _rows(bench: Workbench, ranks: int) -> list[tuple[int, int]]:
    """Micro-batches with the rows that a rank has: those of the worksheet divided over the ranks; where they cannot be, and the worksheet
    does not say how many they are over all ranks, as many on each rank as it states for one GPU. So many steps of more rows would be
    another amount of training: not where steps are stated."""
    job = bench.as_written.job
    rows = job.rows_per_step
    if rows % ranks and bench.worksheet.stated("batch.global_rows") is None and job.data.steps is None:
        rows *= ranks
    return [(size, rows // ranks) for size in row_splits(rows, ranks, job, bench)]


def _candidates(place: _Place, timer: Timer) -> Iterator[Trial | Refusal]:
    """What needs least first; where that fits, each level of savers from the fastest on, until communication is no more than hidden.

    At each level the least traffic that fits, with the most rows; where that waits for communication, or has room for the fewest rows
    alone, also the layout that divides most: it may take more rows, which hide more and cost less each.
    """
    least = place.trial(place.strategies[-1], place.levels[-1])
    if isinstance(least, Refusal) or least.verdict != "fits":
        yield least
        yield from _last_resorts(place, timer)
        return
    for level in place.levels:
        first = _first_that_fits(place, level, place.strategies)
        if first is None:
            continue
        yield (most := timer(_most_rows(place, level, first)))
        waits = exposed_share(most) > EXPOSED_SHARE
        if waits or most.job.batch.micro_batch == place.rows[0][0] < place.rows[-1][0]:
            divided = _first_that_fits(place, level, place.strategies[-1:])
            if divided is not None and divided.job.layout.strategy != most.job.layout.strategy:
                yield timer(_most_rows(place, level, divided))
        if not waits:
            return


def _first_that_fits(place: _Place, level: Level, strategies: Sequence[str]) -> Trial | None:
    """With the fewest rows."""
    for strategy in strategies:
        trial = place.trial(strategy, level)
        if isinstance(trial, Trial) and trial.fits and keeps_training(place.bench.as_written.job, trial.job):
            return trial
    return None


def _most_rows(place: _Place, level: Level, smallest: Trial) -> Trial:
    """The same with the largest micro-batch that fits, by bisection."""
    strategy = smallest.job.layout.strategy
    best, low, high = smallest, 0, len(place.rows) - 1
    while low < high:
        middle = (low + high + 1) // 2
        trial = place.trial(strategy, level, place.rows[middle])
        if isinstance(trial, Trial) and trial.fits:
            best, low = trial, middle
        else:
            high = middle - 1
    return best


def _last_resorts(place: _Place, timer: Timer) -> Iterator[Trial | Refusal]:
    """What gives up speed for memory, the mildest first, until one fits."""
    fits = False
    for level in _LAST_RESORTS:
        for strategy in _for_level(level, place):
            trial = place.trial(strategy, level, (place.rows[0][1],) * 2 if level.in_backward else None)
            if isinstance(trial, Trial) and keeps_training(place.bench.as_written.job, trial.job):
                fits = fits or trial.fits
                yield timer(trial if level.in_backward else _most_rows(place, level, trial)) if trial.fits else trial
        if fits:
            return


def _for_level(level: Level, place: _Place) -> Sequence[str]:
    """ZeRO offloads optimizers alone, FSDP and ZeRO-3 together with parameters; a step inside backward leaves no gradient to reduce."""
    if not place.bench.may_change("layout.strategy"):
        return place.strategies
    if level.in_backward:
        return [name for name in place.strategies if name in ("single", "fsdp")] if place.job.method.kind == "full" else []
    if level.offload == 1:
        return place.strategies[-1:]
    known = strategies_for(place.job, place.job.machine.nodes)
    wanted = ("zero2",) if level.offload == 2 else ("zero3", "fsdp")
    return [name for name in wanted if name in known]
