"""How likely a rental keeps the deadline and the budget."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from functools import partial
from math import inf
from typing import Literal

from fullstep.cost.bill import Priced, saving_of, taking_of
from fullstep.cost.chance import chance_within
from fullstep.cost.rent import Rent
from fullstep.cost.usage import Usage
from fullstep.job import Job
from fullstep.plan.rental import Rental
from fullstep.plan.usage import UsageBounds
from fullstep.quantities import HOUR_SECONDS, Bounds

_WEIGHTS = (0.185, 0.63, 0.185)
"""of the 5 %, 50 % and 95 % quantiles of what is not sure of interruptions, for an expectation (Keefer and Bodily 1983)"""
_ALIKE = 0.001
"""chances that differ by less are one"""


def with_chances(job: Job, rental: Rental, usage: UsageBounds, likely: Priced, rents: Sequence[Rent]) -> Rental:
    """A rental with the chances that it keeps the deadline and the budget of its job.

    Args:
        job: complete
        rental: with its cost
        usage: at its three ends
        likely: the bill at the likely end
        rents: the terms at the low, likely and high end of what is known of interruptions

    Valid:
        lines of the bill that are not known cost nothing
    """
    goal = job.goal
    takings = [taking_of(usage.likely, rent) if rental.interruptible else None for rent in rents]
    saving, runs = saving_of(usage.likely), usage.likely.runs

    def chance(limit_seconds: float, work: Bounds, clock: Literal["wall", "billed"]) -> float:
        """Over what is not sure of interruptions; what lies between ends that are alike is not worked out."""
        best, likely, worst = (partial(chance_within, limit_seconds, work, saving, taking, clock=clock) for taking in takings)
        least = worst()
        most = least if takings[0] == takings[2] else 1.0 if least > 1.0 - _ALIKE else best()
        if most - least < _ALIKE:
            return least
        return sum(weight * each for weight, each in zip(_WEIGHTS, (most, likely(), least), strict=True))

    in_time = in_budget = None
    if goal.finish_within_hours is not None:  # set-up counts as work: it is no surer
        once = Bounds(*(one.setup_seconds + one.work_seconds for one in usage))
        in_time = chance(goal.finish_within_hours * HOUR_SECONDS, once, "wall")
    if goal.budget is not None:
        all_runs = Bounds(*(one.setup_seconds + runs * one.work_seconds for one in usage))
        in_budget = chance(_seconds_that_it_buys(Decimal(goal.budget), likely, rents[1], usage.likely), all_runs, "billed")
    return rental._replace(in_time=in_time, in_budget=in_budget)


def _seconds_that_it_buys(budget: Decimal, likely: Priced, rent: Rent, usage: Usage) -> float:
    """Of set-up and all runs, billed on each machine, when all else is paid [s]; unknown lines cost nothing."""
    each_second = rent.per_hour * rent.machines / Decimal(HOUR_SECONDS)
    rest = likely.bill.total - each_second * Decimal(repr(usage.setup_seconds + usage.runs * likely.worked_seconds))
    if each_second == 0:
        return inf if budget >= rest else 0.0
    return float((budget - rest) / each_second)
