"""What a job costs on the offers of today."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from fullstep.job import Job
from fullstep.ledger import Answer
from fullstep.offers.market import market
from fullstep.plan.rental import Rental, with_cost
from fullstep.plan.renting import Odds, Renter


def renter_of(machines: str | Path | None = None, odds: Odds | None = None) -> Renter:
    """What prices jobs.

    Args:
        machines: one's own file; None: that which FULLSTEP_MACHINES names, else ``machines.toml`` here, where there is one
        odds: what is stated of interruptions and networks

    Raises:
        InputError: the file is at fault
    """
    return Renter(market(machines), odds)


def rentals_of(job: Job, answer: Answer, renter: Renter | None = None) -> tuple[Rental, ...]:
    """The cheapest offers of a job's machines, on demand before interruptible; empty where nobody rents them, or no GPU is named.

    Args:
        job: complete
        answer: with its time
        renter: what prices it; None: by the offers of today
    """
    prices = _todays() if renter is None else renter
    return tuple(prices.cheapest(job, answer, prices.offers_for(job)))


def with_price(job: Job, answer: Answer, renter: Renter | None = None) -> Answer:
    """The answer with the cost of its run on the cheapest offer, where both are known."""
    if job.machine.card is None or answer.timing is None or answer.timing.run is None:
        return answer
    rentals = rentals_of(job, answer, renter)
    return with_cost(answer, rentals[0]) if rentals else answer


@cache
def _todays() -> Renter:
    """Read once for all answers of a process."""
    return renter_of()
