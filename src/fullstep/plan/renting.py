"""Offers for a job that is sized and timed: what each would cost in all, on demand or interruptible."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from operator import itemgetter
from typing import NamedTuple

from fullstep.cost.bill import Priced, priced
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
from fullstep.quantities import GIB, HOUR_SECONDS, Bounds, cents

_MILLION = 1_000_000
_AS_STATED = 0.95
"""of a size that a worksheet states: sellers round, and 2,000 GiB stand for 2,048"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What a user states of the market: instead of what would be assumed, and to look at a part of it only."""

    interrupted_every_hours: float | None = None
    """mean, of one machine"""
    wait_hours: float | None = None
    any_fabric: bool = False
    """several machines are taken without a known network between them, too"""
    providers: tuple[str, ...] = ()
    """these alone; empty: all"""
    region: str = ""
    """a part of its name"""
    on_demand_only: bool = False

    def allow(self, offer: Offer) -> bool:
        """The offer is of the part that is looked at."""
        return (not self.providers or offer.provider in self.providers) and self.region.lower() in offer.region.lower()


class Asked(NamedTuple):
    """What one seller asks."""

    offers: tuple[Offer, ...]
    """of which the rental is the cheapest"""
    interruptible: bool
    rental: Rental | None
    """None: on its terms the job never ends"""


class _Found(NamedTuple):
    """The best offer, with its likely bill where the length of the run is known."""

    rental: Rental
    likely: Priced | None

    @property
    def rental_likely(self) -> Decimal:
        """Its likely total, or the price of an hour."""
        return self.rental.per_hour if self.likely is None else self.likely.bill.total


class Renter:
    """Prices jobs on the offers of a market."""

    def __init__(self, market: Market, wishes: Wishes | None = None) -> None:
        """
        Args:
            market: offers, terms and rates
            wishes: what the user states
        """
        self.wishes = wishes or Wishes()
        self.market = market._replace(offers=[_wanted(offer, self.wishes) for offer in market.offers if self.wishes.allow(offer)])
        self._by_machine: dict[tuple[str, int], list[Offer]] = {}
        for offer in self.market.offers:
            for card in offer.cards:
                self._by_machine.setdefault((card.key, offer.gpus), []).append(offer)

    def offers_for(self, job: Job, host_bytes: float = 0.0) -> list[Offer]:
        """Offers of the job's machines: the card, as many of it, no less network and host memory than stated, and enough host memory.

        Args:
            job: complete
            host_bytes: that it needs on one node
        """
        machine = job.machine
        found = [] if machine.card is None else self._by_machine.get((machine.card.key, machine.gpus), [])
        host_gib = max(host_bytes, (machine.host_memory_bytes or 0) * _AS_STATED) / GIB
        network = (machine.network_gbit_s or 0.0) * _AS_STATED if machine.nodes > 1 else 0.0
        return [
            offer for offer in found
            if self.has_enough(offer, machine.nodes)
            and (offer.host_memory_gib is None or offer.host_memory_gib >= host_gib)
            and (offer.network_gbit_s is None or offer.network_gbit_s >= network)
        ]  # fmt: skip

    def has_enough(self, offer: Offer, nodes: int) -> bool:
        """So many of its machines can work together."""
        joined = nodes == 1 or self.wishes.any_fabric or offer.network_gbit_s is not None
        return joined and (offer.machines is None or offer.machines >= nodes)

    def lowest_per_hour(self, offers: Iterable[Offer], job: Job, nodes: int) -> Decimal | None:
        """The least that so many machines of one of the offers cost for an hour, in the currency of the worksheet; None: no price."""
        known = [self._per_hour(offer, kind, job) for offer in offers for kind in (False, True) if offer.price(kind) is not None]
        return min(known) * nodes if known else None

    def cheapest(self, job: Job, answer: Answer, offers: Iterable[Offer]) -> Iterator[Rental]:
        """The cheapest machine of one's own, on demand, and interruptible, of offers for one job, as far as there are any."""
        usage = None if (run := _run(answer)) is None else usage_of(job, run)
        known = list(offers)
        for own, interruptible in ((True, False), (False, False), (False, True)):
            group = [offer for offer in known if offer.is_own is own and offer.price(interruptible) is not None]
            found = self._best(job, answer, group, usage, interruptible)
            if found is not None:
                yield self._in_full(job, answer, found, usage)

    def by_seller(self, job: Job, answer: Answer, offers: Iterable[Offer]) -> Iterator[Asked]:
        """What each seller of a kind of machine asks for one job, on demand and interruptible."""
        usage = None if (run := _run(answer)) is None else usage_of(job, run)
        sellers: dict[tuple[str, str, bool, bool], list[Offer]] = {}
        for offer in offers:
            for interruptible in (False, True):
                if offer.price(interruptible) is not None:
                    sellers.setdefault((offer.provider, offer.tier, offer.purchase is not None, interruptible), []).append(offer)
        for (*_, interruptible), group in sellers.items():
            found = self._best(job, answer, group, usage, interruptible)
            yield Asked(tuple(group), interruptible, None if found is None else self._in_full(job, answer, found, usage))

    def _best(self, job: Job, answer: Answer, offers: Sequence[Offer], usage: UsageBounds | None, interruptible: bool) -> _Found | None:
        """Of offers at a price of one kind, the one whose likely bill is the lowest; of equal machines only the cheapest is asked.

        No bill is below price times hours: what is dearer by that than the best so far is not asked either.
        """
        groups: dict[tuple[object, ...], tuple[Decimal, Offer]] = {}
        for offer in offers:
            priced_at = (self._per_hour(offer, interruptible, job), offer)
            best = groups.get(key := _alike(offer))
            if best is None or priced_at[0] < best[0]:
                groups[key] = priced_at
        found: _Found | None = None
        for per_hour, offer in sorted(groups.values(), key=itemgetter(0)):
            if found is not None and (usage is None or _at_least(per_hour, job, usage) > found.rental_likely):
                break
            bill = None if usage is None else priced(usage.likely, self.rent(job, offer, interruptible))
            if bill is not None and not bill.ends:
                continue
            if found is None or bill is None or bill.bill.total < found.rental_likely:
                whole = per_hour * job.machine.nodes
                rental = Rental(offer, job.machine.nodes, interruptible, whole, _per_million_tokens(job, answer, whole), None, None)
                found = _Found(rental._replace(elsewhere=len(offers) - 1), bill)
        return found

    def _per_hour(self, offer: Offer, interruptible: bool, job: Job) -> Decimal:
        """Of one machine, in the currency of the worksheet."""
        price = offer.price(interruptible)
        assert price is not None
        return converted(price.per_hour, price.currency, job.goal.currency, self.market.rates)

    def _in_full(self, job: Job, answer: Answer, found: _Found, usage: UsageBounds | None) -> Rental:
        """With all bounds, and the chances to keep deadline and budget."""
        rental, likely = found
        if usage is None or likely is None:
            return rental._replace(assumptions=tuple(self._rates(job, rental)))
        low, high = (priced(usage[end], self.rent(job, rental.offer, rental.interruptible, end)) for end in (0, 2))
        hours = Bounds(*(each.run_seconds / HOUR_SECONDS for each in (low, likely, high)))
        cost = _cost(low, likely, high, rental)
        whole = rental._replace(cost=cost, run_hours=hours, assumptions=tuple(self._assumptions(job, rental)))
        if job.goal.finish_within_hours is None and job.goal.budget is None:
            return whole
        from fullstep.plan.chances import with_chances  # noqa: PLC0415 (only a deadline or a budget asks for chances)

        rents = [self.rent(job, rental.offer, rental.interruptible, end) for end in (0, 1, 2)]
        return with_chances(job, whole, usage, likely, rents)

    def _assumptions(self, job: Job, rental: Rental) -> Iterator[Assumption]:
        """Figures that are not stated, and the rates of currencies that are used."""
        provider, wishes = self.market.provider(rental.offer.provider), self.wishes
        stated: set[What] = set()
        if wishes.interrupted_every_hours or provider.interrupted_every_hours:
            stated.add("interrupted_every")
        if wishes.wait_hours is not None or provider.wait_hours is not None:
            stated.add("wait")
        yield from cost_assumptions(job, rental.interruptible, frozenset(stated))
        yield from self._rates(job, rental)

    def _rates(self, job: Job, rental: Rental) -> Iterator[Assumption]:
        """What other currencies than the dollar are worth, as far as the price and the worksheet are in them."""
        price = rental.offer.price(rental.interruptible)
        for currency in {job.goal.currency, price.currency if price is not None else "USD"} - {"USD"}:
            rate = self.market.rates[currency]
            yield Assumption(f"cost.usd_for_one_{currency.lower()}", float(rate.usd_for_one), f"on {rate.on}: {rate.source}")

    def rent(self, job: Job, offer: Offer, interruptible: bool, end: int = 1) -> Rent:
        """The terms of an offer at the low, likely or high end of what is known of interruptions.

        What is assumed is of all machines together: traces of 1 to 16 of them lie within it. What is stated is of one; several are taken to
        be interrupted each by itself, but at the low end of cost all at once.
        """
        provider, nodes, wishes = self.market.provider(offer.provider), job.machine.nodes, self.wishes
        stated = wishes.interrupted_every_hours or provider.interrupted_every_hours
        wait = provider.wait_hours if wishes.wait_hours is None else wishes.wait_hours
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


def _cost(low: Priced, likely: Priced, high: Priced, rental: Rental) -> Cost:
    """Totals in hundredths, in order; None: at the high end it never ends."""
    least, most = cents(min(low.bill.total, likely.bill.total)), cents(max(likely.bill.total, high.bill.total))
    hours = sorted(each.elapsed_seconds / HOUR_SECONDS for each in (low, likely, high))
    return Cost(
        low=least,
        likely=cents(likely.bill.total),
        high=most if high.ends else None,
        bill=likely.bill,
        hours=Bounds(*hours),
        interruptions=likely.interruptions,
        deviation=likely.deviation,
        at=rental.name,
        seen_on=rental.offer.captured_on,
    )


def _wanted(offer: Offer, wishes: Wishes) -> Offer:
    return replace(offer, interruptible=None) if wishes.on_demand_only else offer


def _at_least(per_hour: Decimal, job: Job, usage: UsageBounds) -> Decimal:
    """What its training alone costs: no bill is below it."""
    return per_hour * job.machine.nodes * Decimal(repr(usage.likely.runs * usage.likely.work_seconds / HOUR_SECONDS))


def _alike(offer: Offer) -> tuple[object, ...]:
    """What a bill reads of an offer but its price."""
    return offer.provider, offer.disk_gb, offer.is_own


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
    rentals = tuple(renter.cheapest(trial.job, trial.answer, renter.offers_for(trial.job, trial.answer.host.memory_peak_bytes)))
    return trial._replace(rentals=rentals, answer=with_cost(trial.answer, rentals[0])) if rentals else trial
