"""Offers for a job that is sized and timed: what each would cost in all, on demand or interruptible."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import inf
from operator import itemgetter

from fullstep.cost.bill import Priced, priced, saving_of, taking_of
from fullstep.cost.periods import HOUR_SECONDS
from fullstep.cost.rent import Rent
from fullstep.evidence import Assumption
from fullstep.job import Job
from fullstep.ledger import Answer, Cost, Run
from fullstep.offers.assumptions import What, assumed
from fullstep.offers.currency import converted
from fullstep.offers.market import Market
from fullstep.offers.offer import Offer
from fullstep.plan.rental import Rental, with_cost
from fullstep.plan.trial import Trial
from fullstep.plan.usage import UsageBounds, cost_assumptions, usage_of
from fullstep.quantities import Bounds, cents

_MILLION = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Odds:
    """What a user states instead of what would be assumed."""

    interrupted_every_hours: float | None = None
    """mean, of one machine"""
    wait_hours: float | None = None
    any_fabric: bool = False
    """several machines are taken without a known network between them, too"""


class Renter:
    """Prices jobs on the offers of a market."""

    def __init__(self, market: Market, odds: Odds | None = None) -> None:
        """
        Args:
            market: offers, terms and rates
            odds: what the user states
        """
        self.market = market
        self.odds = odds or Odds()
        self._by_machine: dict[tuple[str, int], list[Offer]] = {}
        for offer in market.offers:
            for card in offer.cards:
                self._by_machine.setdefault((card.key, offer.gpus), []).append(offer)

    def offers_for(self, job: Job) -> list[Offer]:
        """Offers of the job's machines: the card, as many of it, and for several machines a network that is known."""
        machine = job.machine
        found = [] if machine.card is None else self._by_machine.get((machine.card.key, machine.gpus), [])
        return [offer for offer in found if self.has_enough(offer, machine.nodes)]

    def has_enough(self, offer: Offer, nodes: int) -> bool:
        """So many of its machines can work together."""
        joined = nodes == 1 or self.odds.any_fabric or offer.network_gbit_s is not None
        return joined and (offer.machines is None or offer.machines >= nodes)

    def lowest_per_hour(self, offers: Iterable[Offer], job: Job, nodes: int) -> Decimal | None:
        """The least that so many machines of one of the offers cost for an hour, in the currency of the worksheet; None: no price."""
        known = [self._per_hour(offer, kind, job) for offer in offers for kind in (False, True) if offer.price(kind) is not None]
        return min(known) * nodes if known else None

    def cheapest(self, job: Job, answer: Answer, offers: Iterable[Offer]) -> Iterator[Rental]:
        """The cheapest machine of one's own, on demand, and interruptible, of offers for one job, as far as there are any."""
        own: list[Offer] = []
        rented: list[Offer] = []
        for offer in offers:
            (own if offer.is_own else rented).append(offer)
        usage = None if (run := _run(answer)) is None else usage_of(job, run)
        for group, interruptible in ((own, False), (rented, False), (rented, True)):
            best = min(self._rentals(job, answer, group, usage, interruptible), key=_by_cost, default=None)
            if best is not None:
                yield self._in_full(job, answer, best, usage)

    def _rentals(
        self, job: Job, answer: Answer, offers: Sequence[Offer], usage: UsageBounds | None, interruptible: bool
    ) -> Iterator[Rental]:
        """Each by its likely cost alone; of equal machines only the cheapest, as nothing else tells them apart."""
        groups: dict[tuple[object, ...], list[tuple[Decimal, Offer]]] = {}
        for offer in offers:
            if offer.price(interruptible) is not None:
                groups.setdefault(_alike(offer, interruptible), []).append((self._per_hour(offer, interruptible, job), offer))
        best: Decimal | None = None
        for alike in sorted(groups.values(), key=_lowest):
            per_hour, offer = min(alike, key=itemgetter(0))
            if best is not None and usage is not None and _at_least(per_hour, job, usage) > best:
                return  # this one and all that follow cost more for their hours alone
            rental = self._rental(job, answer, offer, usage, interruptible)
            if rental is not None:
                best = rental.cost.likely if rental.cost is not None and (best is None or rental.cost.likely < best) else best
                yield rental._replace(elsewhere=len(alike) - 1)

    def _per_hour(self, offer: Offer, interruptible: bool, job: Job) -> Decimal:
        """Of one machine, in the currency of the worksheet."""
        price = offer.price(interruptible)
        assert price is not None
        return converted(price.per_hour, price.currency, job.goal.currency, self.market.rates)

    def _rental(self, job: Job, answer: Answer, offer: Offer, usage: UsageBounds | None, interruptible: bool) -> Rental | None:
        """With the likely bill as its only figure; None: it never ends."""
        nodes = job.machine.nodes
        per_hour = self._per_hour(offer, interruptible, job) * nodes
        rental = Rental(offer, nodes, interruptible, per_hour, _per_million_tokens(job, answer, per_hour), None, None)
        if usage is None:
            return rental
        found = priced(usage.likely, self.rent(job, offer, interruptible))
        if not found.ends:
            return None
        return rental._replace(cost=_cost(found, found, found), run_hours=Bounds.exact(found.run_seconds / HOUR_SECONDS))

    def _in_full(self, job: Job, answer: Answer, rental: Rental, usage: UsageBounds | None) -> Rental:
        """With all bounds, and the chances to keep deadline and budget."""
        if usage is None:
            return rental
        found = [priced(one, self.rent(job, rental.offer, rental.interruptible, end)) for end, one in enumerate(usage)]
        hours = Bounds(*(each.run_seconds / HOUR_SECONDS for each in found))
        whole = rental._replace(cost=_cost(*found), run_hours=hours, assumptions=tuple(self._assumptions(job, rental)))
        return self._with_chances(job, whole, usage, found[1])

    def _assumptions(self, job: Job, rental: Rental) -> Iterator[Assumption]:
        """Figures that are not stated, and the rates of currencies that are used."""
        provider, odds = self.market.provider(rental.offer.provider), self.odds
        stated: set[What] = set()
        if odds.interrupted_every_hours or provider.interrupted_every_hours:
            stated.add("interrupted_every")
        if odds.wait_hours is not None or provider.wait_hours is not None:
            stated.add("wait")
        yield from cost_assumptions(job, rental.interruptible, frozenset(stated))
        price = rental.offer.price(rental.interruptible)
        for currency in {job.goal.currency, price.currency if price is not None else "USD"} - {"USD"}:
            rate = self.market.rates[currency]
            yield Assumption(f"cost.usd_for_one_{currency.lower()}", float(rate.usd_for_one), f"on {rate.on}: {rate.source}")

    def rent(self, job: Job, offer: Offer, interruptible: bool, end: int = 1) -> Rent:
        """The terms of an offer at the low, likely or high end of what is known of interruptions.

        What is assumed is of all machines together: traces of 1 to 16 of them lie within it. What is stated is of one; several are taken to
        be interrupted each by itself, but at the low end of cost all at once.
        """
        provider, nodes, odds = self.market.provider(offer.provider), job.machine.nodes, self.odds
        stated = odds.interrupted_every_hours or provider.interrupted_every_hours
        wait = provider.wait_hours if odds.wait_hours is None else odds.wait_hours
        every = assumed("interrupted_every").bounds[2 - end]
        if stated is not None:
            every = stated * HOUR_SECONDS / (1 if end == 0 else nodes)
        return Rent(
            per_hour=self._per_hour(offer, interruptible, job),
            machines=nodes,
            currency=job.goal.currency,
            for_one_usd=converted(Decimal(1), "USD", job.goal.currency, self.market.rates),
            provider=provider,
            is_own=offer.is_own,
            disk_gb=offer.disk_gb,
            interrupted_every_seconds=every if interruptible else None,
            wait_seconds=0.0 if not interruptible else assumed("wait").bounds[end] if wait is None else wait * HOUR_SECONDS,
        )

    def _with_chances(self, job: Job, rental: Rental, usage: UsageBounds, likely: Priced) -> Rental:
        goal = job.goal
        if rental.cost is None or (goal.finish_within_hours is None and goal.budget is None):
            return rental
        from fullstep.cost.chance import chance_within  # noqa: PLC0415 (only a deadline or a budget asks for chances)

        rent = self.rent(job, rental.offer, rental.interruptible)
        taking = taking_of(usage.likely, rent) if rental.interruptible else None
        saving, work = saving_of(usage.likely), Bounds(*(one.work_seconds for one in usage))
        in_time = in_budget = None
        if goal.finish_within_hours is not None:
            in_time = chance_within(goal.finish_within_hours * HOUR_SECONDS - usage.likely.setup_seconds, work, saving, taking)
        if goal.budget is not None:
            seconds = _seconds_that_it_buys(Decimal(goal.budget), likely, rent, usage.likely.runs)
            all_runs = Bounds(*(usage.likely.runs * end for end in work))
            in_budget = chance_within(seconds, all_runs, saving, taking, clock="billed")
        return rental._replace(in_time=in_time, in_budget=in_budget)


def _seconds_that_it_buys(budget: Decimal, likely: Priced, rent: Rent, runs: int) -> float:
    """Of all runs, billed on each machine, when all that is not their work is paid [s]; unknown lines cost nothing."""
    each_second = rent.per_hour * rent.machines / Decimal(HOUR_SECONDS)
    rest = likely.bill.total - each_second * Decimal(repr(runs * likely.worked_seconds))
    if each_second == 0:
        return inf if budget >= rest else 0.0
    return float((budget - rest) / each_second)


def _cost(low: Priced, likely: Priced, high: Priced) -> Cost:
    """Totals in hundredths, in order; None: at the high end it never ends."""
    totals = sorted(cents(each.bill.total) for each in (low, likely))
    top = max(totals[1], cents(high.bill.total)) if high.ends else None
    hours = sorted((low.elapsed_seconds / HOUR_SECONDS, likely.elapsed_seconds / HOUR_SECONDS))
    return Cost(
        low=totals[0],
        likely=cents(likely.bill.total),
        high=top,
        bill=likely.bill,
        hours=Bounds(hours[0], hours[1], max(hours[1], high.elapsed_seconds / HOUR_SECONDS)),
        interruptions=likely.interruptions,
        deviation=likely.deviation,
    )


def _lowest(alike: Sequence[tuple[Decimal, Offer]]) -> Decimal:
    """Of equal machines."""
    return min(price for price, _ in alike)


def _at_least(per_hour: Decimal, job: Job, usage: UsageBounds) -> Decimal:
    """What its training alone costs: no bill is below it."""
    return per_hour * job.machine.nodes * Decimal(repr(usage.likely.runs * usage.likely.work_seconds / HOUR_SECONDS))


def _alike(offer: Offer, interruptible: bool) -> tuple[object, ...]:
    """What tells offers apart but their price and place."""
    price = offer.price(interruptible)
    kept = (offer.provider, offer.tier, offer.cards, offer.is_own, offer.machines, None if price is None else price.kind)
    return (*kept, offer.network_gbit_s, offer.rdma, offer.host_memory_gib, offer.disk_gb)


def _by_cost(rental: Rental) -> tuple[Decimal, Decimal]:
    return (rental.per_hour if rental.cost is None else rental.cost.likely), rental.per_hour


def _run(answer: Answer) -> Run | None:
    return None if answer.timing is None else answer.timing.run


def _per_million_tokens(job: Job, answer: Answer, per_hour: Decimal) -> Decimal | None:
    """``price per hour / (3600 * tokens per second)`` for a million useful tokens of training, by the likely step."""
    step = None if answer.timing is None else answer.timing.step
    if step is None:
        return None
    tokens_per_hour = step.tokens_per_second_per_gpu.likely * job.machine.gpus * job.machine.nodes * HOUR_SECONDS
    return per_hour * _MILLION / Decimal(repr(tokens_per_hour))


def with_rentals(trial: Trial, renter: Renter) -> Trial:
    """The trial with what its machines cost where they are for rent, and its run with the cost of the first."""
    rentals = tuple(renter.cheapest(trial.job, trial.answer, renter.offers_for(trial.job)))
    return trial._replace(rentals=rentals, answer=with_cost(trial.answer, rentals[0])) if rentals else trial
