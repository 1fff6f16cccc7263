"""No machine is named: the whole market is searched. For each kind of machine the fastest layout that fits, for each layout what it costs.

Offers that differ by their price and place alone are one kind of machine. Equal cards are sized once, in each number of them that is sold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from fullstep.errors import Fault, UnsupportedError
from fullstep.hardware import Card
from fullstep.job import Job, edit
from fullstep.offers.offer import Offer
from fullstep.plan.candidates import RuledOut, node_counts
from fullstep.plan.deadline import HOUR_SECONDS, judge_run
from fullstep.plan.machine_layouts import best_on
from fullstep.plan.no_rental import host_too_small, never_ends, over_budget, too_few, too_late, unknown_network
from fullstep.plan.rejections import Rejection
from fullstep.plan.rental import Rental, with_cost
from fullstep.plan.renting import Renter
from fullstep.plan.timer import Timer
from fullstep.plan.trial import Refusal, Trial, Workbench
from fullstep.plan.verdict import judge_host
from fullstep.quantities import GIB, Bounds


class Kind(NamedTuple):
    """Machines that a search cannot tell apart."""

    cards: tuple[Card, ...]
    gpus: int
    nodes: int
    network_gbit_s: float | None
    rdma: bool | None

    @property
    def words(self) -> str:
        """``2 nodes of 8 x H100-PCIE or H100-SXM``."""
        here = f"{self.gpus} x {' or '.join(card.key for card in self.cards)}"
        return here if self.nodes == 1 else f"{self.nodes} nodes of {here}"

    def changes(self, card: Card) -> dict[str, object]:
        """The machine as worksheet keys, with one of the cards that it may have."""
        found: dict[str, object] = {"machine.gpu": card.key, "machine.gpus": self.gpus, "machine.nodes": self.nodes}
        if self.nodes > 1 and self.network_gbit_s is not None:
            found |= {"machine.network_gbit_s": self.network_gbit_s, "machine.rdma": self.rdma}
        return found


class Searched(NamedTuple):
    """What a search over the market found."""

    trials: list[Trial]
    """timed, each with its rental"""
    ruled_out: list[RuledOut]
    """by memory, or what a card cannot do"""
    without: list[Rejection]
    """what fits and cannot be rented for it: the network, the host, the budget, the time"""
    late: list[Trial]
    """of ``without``, by the deadline"""
    dear: list[Trial]
    """of ``without``, by the budget"""


def search_market(bench: Workbench, timer: Timer, renter: Renter) -> Searched:
    """Every kind of machine on the market in every number that the worksheet allows."""
    search = _Search(bench, timer, renter)
    for nodes in node_counts(bench.as_written.job):
        if bench.allows({"machine.nodes": nodes}):
            search.on(nodes)
    return search.found


class _Search:
    """One search over the market, with what it has found so far."""

    def __init__(self, bench: Workbench, timer: Timer, renter: Renter) -> None:
        self._bench, self._timer, self._renter = bench, timer, renter
        self.found = Searched([], [], [], [], [])

    def on(self, nodes: int) -> None:
        """All kinds of machines, so many of each."""
        for kind, offers in self._kinds(nodes).items():
            if self._bench.may_change("machine.gpus") or kind.gpus == self._bench.as_written.job.machine.gpus:
                self._kind(kind, offers)
        self.found.without.extend(_not_joined(self._renter, nodes))

    def _kinds(self, nodes: int) -> Mapping[Kind, list[Offer]]:
        kinds: dict[Kind, list[Offer]] = {}
        for offer in self._renter.market.offers:
            if self._renter.has_enough(offer, nodes):
                network = (offer.network_gbit_s, offer.rdma) if nodes > 1 else (None, None)
                kinds.setdefault(Kind(offer.cards, offer.gpus, nodes, *network), []).append(offer)
        return kinds

    def _kind(self, kind: Kind, offers: Sequence[Offer]) -> None:
        """Its best layout, then what each seller asks for it."""
        unable = _unable(self._bench.as_written.job, kind.cards)
        worst = Refusal({}, unable) if unable is not None else self._worst_of(kind)
        if isinstance(worst, Refusal) or worst.verdict == "does_not_fit":
            price = self._renter.lowest_per_hour(offers, self._bench.as_written.job, kind.nodes)
            self.found.ruled_out.append(RuledOut(kind.words, worst, len(offers), worst.changes, offers=tuple(offers), per_hour=price))
            return
        fitting = [offer for offer in offers if _host_is_enough(worst, offer)]
        without = self.found.without
        if len(fitting) < len(offers):
            small = [offer for offer in offers if offer not in fitting]
            price = self._renter.lowest_per_hour(small, worst.job, kind.nodes)
            without.append(host_too_small(kind.words, worst, small)._replace(per_hour=price))
        rentals = list(self._renter.cheapest(worst.job, worst.answer, fitting))
        if fitting and not rentals:
            without.append(never_ends(kind.words, fitting))
        for trial in (_rented(worst, rental) for rental in rentals):
            late, dear = too_late(kind.words, trial, fitting), over_budget(kind.words, trial, fitting)
            (self.found.late if late else self.found.dear if dear else self.found.trials).append(trial)
            price = None if trial.rental is None else trial.rental.per_hour
            without.extend(out._replace(per_hour=price) for out in (late or dear,) if out is not None)

    def _worst_of(self, kind: Kind) -> Trial | Refusal:
        return _worst([best_on(self._bench, self._timer, card, kind.changes(card)) for card in kind.cards])


def _unable(job: Job, cards: Sequence[Card]) -> UnsupportedError | None:
    """What none of the forms that it may have can do, and the worksheet asks for."""
    names = " or ".join(card.key for card in cards)
    if job.precision.compute == "bfloat16" and not all(card.trains_bf16 for card in cards):
        return UnsupportedError(Fault(names, "no arithmetic in bfloat16", "", "State precision.compute = float16 for them."))
    if job.precision.compute == "fp8" and not all(card.trains_fp8 for card in cards):
        return UnsupportedError(Fault(names, "no arithmetic in fp8", "", "State precision.compute = bfloat16 for them."))
    stated = job.worksheet.get("step", {}).get("attention")
    if stated == "flash" and not all(card.has_flash_attention for card in cards):
        return UnsupportedError(Fault(names, "no flash attention", "", "State step.attention = sdpa for them."))
    return None


def _worst(trials: Sequence[Trial | Refusal]) -> Trial | Refusal:
    """Of the forms that a machine may have: the one that is refused, fits worst, or is slowest, with the times from the fastest to it."""
    sized = [trial for trial in trials if isinstance(trial, Trial)]
    refused = next((trial for trial in trials if isinstance(trial, Refusal)), None)
    if refused is not None or not sized:
        return refused or trials[0]
    worst = max(sized, key=lambda trial: (trial.verdict != "fits", trial.verdict == "does_not_fit", trial.seconds_per_token or 0.0))
    runs = [trial.answer.timing.run for trial in sized if trial.answer.timing is not None]
    timing = worst.answer.timing
    if len(sized) == 1 or timing is None or timing.run is None:
        return worst
    known = [run.seconds for run in runs if run is not None]
    seconds = Bounds(min(one.low for one in known), timing.run.seconds.likely, max(one.high for one in known))
    run = replace(timing.run, seconds=seconds)
    return worst._replace(answer=replace(worst.answer, timing=timing._replace(run=run)))


def _host_is_enough(trial: Trial, offer: Offer) -> bool:
    if offer.host_memory_gib is None:
        return True
    reserve = trial.job.goal.reserve_fraction
    return judge_host(trial.answer.host.memory_peak_bytes, round(offer.host_memory_gib * GIB), reserve) != "does_not_fit"


def _rented(trial: Trial, rental: Rental) -> Trial:
    """The trial on the machine of an offer: with its host memory and its processors, its cost, and when it ends."""
    offer, answer, job = rental.offer, trial.answer, trial.job
    changes: dict[str, object] = {}
    if offer.host_memory_gib is not None:
        changes["machine.host_memory_gib"] = offer.host_memory_gib
        memory_bytes = round(offer.host_memory_gib * GIB)
        verdict = judge_host(answer.host.memory_peak_bytes, memory_bytes, job.goal.reserve_fraction)
        answer = replace(answer, host=replace(answer.host, verdict=verdict))
        job = replace(job, machine=replace(job.machine, host_memory_bytes=memory_bytes))
    if offer.vcpus is not None and offer.vcpus >= 1:
        changes["machine.cpu_cores"] = int(offer.vcpus)
    deadline = job.goal.finish_within_hours
    hours = rental.run_hours
    ending = trial.ending
    if deadline is not None and hours is not None:
        ending = judge_run(Bounds(*(end * HOUR_SECONDS for end in hours)), deadline * HOUR_SECONDS)
    answer = with_cost(answer, rental)
    return trial._replace(
        changes={**trial.changes, **changes},
        worksheet=edit(trial.worksheet, changes),
        job=job,
        answer=answer,
        ending=ending,
        rentals=(rental,),
    )


def _not_joined(renter: Renter, nodes: int) -> Iterator[Rejection]:
    """Offers of which so many machines cannot work together, or are not there."""
    offers = [offer for offer in renter.market.offers if nodes > 1 and not renter.has_enough(offer, nodes)]
    few = [offer for offer in offers if offer.machines is not None and offer.machines < nodes]
    silent = [offer for offer in offers if offer not in few]
    if silent:
        yield unknown_network(nodes, silent)
    if few:
        yield too_few(nodes, few)
