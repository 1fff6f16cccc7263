"""No machine is named: the whole market is searched. For each kind of machine the fastest layout that fits, for each layout what it costs.

Offers that differ by their price and place alone are one kind of machine. Equal cards are sized once, in each number of them that is sold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import NamedTuple

from fullstep.errors import Fault, UnsupportedError
from fullstep.hardware import Card
from fullstep.job import Job, edit
from fullstep.ledger import Run
from fullstep.offers.offer import Offer
from fullstep.plan.candidates import RuledOut, node_counts
from fullstep.plan.deadline import judge_run
from fullstep.plan.machine_layouts import Kind, best_on
from fullstep.plan.no_rental import (
    host_too_small,
    never_ends,
    not_known,
    other_count,
    over_budget,
    too_few,
    too_late,
    unknown_network,
    waits_for_network,
)
from fullstep.plan.rejections import Rejection
from fullstep.plan.rental import Rental, with_cost
from fullstep.plan.renting import Asked, Renter
from fullstep.plan.timer import Timer, exposed_share
from fullstep.plan.trial import Refusal, Trial, Workbench, verdict_order
from fullstep.plan.verdict import judge_host
from fullstep.quantities import GIB, HOUR_SECONDS, Bounds

_MOSTLY_WAITING = 0.5
"""share of a step that waits for communication, from which on twice as many machines are not tried: they would wait longer"""


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
    open: list[tuple[Trial, Rejection]]
    """whose time or cost is not known, where a deadline or a budget asks for it"""


def search_market(bench: Workbench, timer: Timer, renter: Renter) -> Searched:
    """Every kind of machine on the market in every number that the worksheet allows."""
    found = Searched([], [], [], [], [], [])
    job = bench.as_written.job
    counts = [nodes for nodes in node_counts(job) if bench.allows({"machine.nodes": nodes})]
    waits: set[Kind] = set()
    for nodes in counts:
        for kind, offers in _kinds(renter, nodes).items():
            alike = kind._replace(nodes=1)
            if not bench.may_change("machine.gpus") and kind.gpus != job.machine.gpus:
                if nodes == counts[0]:
                    found.without.append(other_count(kind.words, job.machine.gpus, offers))
            elif alike in waits:
                found.without.append(waits_for_network(kind.words, offers))
            elif _search_kind(bench, timer, renter, (kind, offers), found) > _MOSTLY_WAITING:
                waits.add(alike)
    found.without.extend(_not_joined(renter, counts))
    if found.trials or found.late or found.dear:  # what can be judged is preferred to what cannot
        found.without.extend(out for _, out in found.open)
    else:
        found.trials.extend(trial for trial, _ in found.open)
    return found


def _kinds(renter: Renter, nodes: int) -> Mapping[Kind, list[Offer]]:
    kinds: dict[Kind, list[Offer]] = {}
    for offer in renter.market.offers:
        if renter.has_enough(offer, nodes):
            network = (offer.network_gbit_s, offer.rdma) if nodes > 1 else (None, None)
            kinds.setdefault(Kind(offer.cards, offer.gpus, nodes, *network), []).append(offer)
    return kinds


def _search_kind(bench: Workbench, timer: Timer, renter: Renter, machines: tuple[Kind, Sequence[Offer]], found: Searched) -> float:
    """The best layout of a kind of machine, then what each seller asks; returns the share of its step that waits for communication."""
    kind, offers = machines
    job = bench.as_written.job
    unable = _unable(job, kind.cards)
    worst = Refusal({}, unable) if unable is not None else _worst([best_on(bench, timer, kind, card) for card in kind.cards])
    if isinstance(worst, Refusal) or worst.verdict == "does_not_fit":
        price = renter.lowest_per_hour(offers, job, kind.nodes)
        found.ruled_out.append(RuledOut(kind.words, worst, len(offers), worst.changes, offers=tuple(offers), per_hour=price))
        return 0.0
    fitting: list[Offer] = []
    small: list[Offer] = []
    for offer in offers:
        (fitting if _host_is_enough(worst, offer) else small).append(offer)
    if small:
        found.without.append(host_too_small(kind.words, worst, small)._replace(per_hour=renter.lowest_per_hour(small, job, kind.nodes)))
    for asked in renter.by_seller(worst.job, worst.answer, fitting):
        _judge(kind, worst, asked, found)
    return exposed_share(worst) if kind.nodes > 1 else 0.0


def _judge(kind: Kind, trial: Trial, asked: Asked, found: Searched) -> None:
    """What a seller asks becomes an option, or is out by the deadline or the budget."""
    what = f"{kind.words}{', interruptible' if asked.interruptible else ''}"
    if asked.rental is None:
        found.without.append(never_ends(what, asked.offers))
        return
    rented = _rented(trial, asked.rental)
    if asked.rental.cost is None and (rented.job.goal.budget is not None or rented.job.goal.finish_within_hours is not None):
        found.open.append((rented, not_known(what, rented, asked.offers)._replace(per_hour=asked.rental.per_hour)))
        return
    late, dear = too_late(what, rented, asked.offers), over_budget(what, rented, asked.offers)
    (found.late if late else found.dear if dear else found.trials).append(rented)
    found.without.extend(out._replace(per_hour=asked.rental.per_hour) for out in (late or dear,) if out is not None)


def _unable(job: Job, cards: Sequence[Card]) -> UnsupportedError | None:
    """What the worksheet asks for and one of the forms that it may have cannot do."""
    wanted = (
        (job.precision.compute == "bfloat16", "trains_bf16", "arithmetic in bfloat16", "precision.compute = float16"),
        (job.precision.compute == "fp8", "trains_fp8", "arithmetic in fp8", "precision.compute = bfloat16"),
        (job.worksheet.get("step", {}).get("attention") == "flash", "has_flash_attention", "flash attention", "step.attention = sdpa"),
    )
    for asked, able, words, instead in wanted:
        lacking = [card.key for card in cards if not getattr(card, able)] if asked else []
        if lacking:
            return UnsupportedError(Fault(" or ".join(lacking), f"no {words}", "", f"State {instead} for them."))
    return None


def _worst(trials: Sequence[Trial | Refusal]) -> Trial | Refusal:
    """Of the forms that a machine may have: the one that is refused, fits worst, or is slowest, with the times from the fastest to it."""
    sized: list[Trial] = []
    for trial in trials:
        if isinstance(trial, Refusal):
            return trial
        sized.append(trial)
    worst = max(sized, key=lambda trial: (verdict_order(trial.verdict), trial.seconds_per_token or inf))
    timing = worst.answer.timing
    runs = [found.answer.timing.run for found in sized if found.answer.timing is not None]
    if len(sized) == 1 or timing is None or timing.run is None:
        return worst
    run = _from_to([each for each in runs if each is not None], timing.run)
    return worst._replace(answer=replace(worst.answer, timing=timing._replace(run=run)))


def _from_to(runs: Sequence[Run], likely: Run) -> Run:
    """A run whose low end is that of the fastest form, part by part, and whose high end is that of the slowest."""
    fastest, slowest = min(runs, key=lambda run: run.seconds.low), max(runs, key=lambda run: run.seconds.high)
    saves = [run.checkpoint_seconds for run in (fastest, likely, slowest)]
    known = [each for each in saves if each is not None]
    return replace(
        likely,
        seconds=Bounds(fastest.seconds.low, likely.seconds.likely, slowest.seconds.high),
        evaluation_seconds=Bounds(fastest.evaluation_seconds.low, likely.evaluation_seconds.likely, slowest.evaluation_seconds.high),
        checkpoint_seconds=Bounds(known[0].low, known[1].likely, known[2].high) if len(known) == len(saves) else None,
    )


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


def _not_joined(renter: Renter, counts: Sequence[int]) -> Iterator[Rejection]:
    """Offers of which several machines cannot work together, or are not there: each once, at the least number that fails."""
    left = list(renter.market.offers)
    for nodes in sorted(counts):
        silent: list[Offer] = []
        few: list[Offer] = []
        kept: list[Offer] = []
        for offer in left:
            enough = offer.machines is None or offer.machines >= nodes
            (kept if renter.has_enough(offer, nodes) else silent if enough else few).append(offer)
        if silent:
            yield unknown_network(nodes, silent)
        if few:
            yield too_few(nodes, few)
        left = kept
