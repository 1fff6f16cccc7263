"""What a job costs on the offers of today."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from functools import lru_cache
from pathlib import Path

from fullstep.job import Job
from fullstep.ledger import Answer
from fullstep.offers.market import changed, market
from fullstep.plan.rental import Rental, with_cost
from fullstep.plan.renting import Renter, Wishes


def renter_of(machines: str | Path | None = None, wishes: Wishes | None = None) -> Renter:
    """What prices jobs.

    Args:
        machines: one's own file; None: that which FULLSTEP_MACHINES names, else ``machines.toml`` here, where there is one
        wishes: what is stated of interruptions, networks and sellers

    Raises:
        InputError: the file is at fault
    """
    return Renter(market(machines), wishes)


def rentals_of(job: Job, answer: Answer, renter: Renter | None = None) -> tuple[Rental, ...]:
    """The cheapest offers of a job's machines: your own, on demand, interruptible; empty where nobody has them, or no GPU is named.

    Args:
        job: complete
        answer: with its time
        renter: what prices it; None: by the offers of today
    """
    return tuple(_rentals(job, answer, renter))


def with_price(job: Job, answer: Answer, renter: Renter | None = None) -> Answer:
    """The answer with the cost of its run on the cheapest offer, where both are known."""
    if answer.timing is None or answer.timing.run is None:
        return answer
    first = next(_rentals(job, answer, renter), None)
    return answer if first is None else with_cost(answer, first)


def _rentals(job: Job, answer: Answer, renter: Renter | None) -> Iterator[Rental]:
    """One after the other, as they are asked for."""
    machine = job.machine
    if machine.card is None:
        return
    prices = _todays(machine.card.key, machine.gpus) if renter is None else renter
    yield from prices.cheapest(job, answer, prices.offers_for(job, answer.host.memory_peak_bytes))


def _todays(card: str, gpus: int) -> Renter:
    """Offers of such machines, by the files as they are now."""
    return _read(card, gpus, changed())


@lru_cache(maxsize=256)
def _read(card: str, gpus: int, _: Hashable) -> Renter:
    """Once for as long as no file changes."""
    return Renter(market(only=(card, gpus)))
