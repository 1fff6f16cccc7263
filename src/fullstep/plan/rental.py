"""Machines of one offer for one job, and what they cost."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import NamedTuple

from fullstep.evidence import Assumption
from fullstep.ledger import Answer, Cost
from fullstep.offers.offer import Offer
from fullstep.quantities import Bounds

COST = "run.cost"
"""the part of an answer that a rental fills"""


class Rental(NamedTuple):
    """Machines of one offer for one job."""

    offer: Offer
    machines: int
    interruptible: bool
    per_hour: Decimal
    """of all machines, in the currency of the worksheet"""
    per_million_tokens: Decimal | None
    """by the likely time of a step alone; None: that is not known"""
    cost: Cost | None
    """None: the length of the run is not known"""
    run_hours: Bounds | None
    """from the order to the result of one run, waits included"""
    in_time: float | None = None
    """chance to end within the deadline; None: there is none, or not known"""
    in_budget: float | None = None
    """chance to stay within the budget"""
    elsewhere: int = 0
    """further offers of such machines at the same seller that cost more"""
    assumptions: tuple[Assumption, ...] = ()
    """what the cost rests on and nobody stated"""

    @property
    def name(self) -> str:
        """In words: ``2 x aws us-east-1 p5.48xlarge, interruptible``."""
        many = f"{self.machines} x " if self.machines > 1 else ""
        return f"{many}{self.offer.name}{', interruptible' if self.interruptible else ''}"


def with_cost(answer: Answer, rental: Rental) -> Answer:
    """The answer with what its run costs there, and what that rests on."""
    timing = answer.timing
    if timing is None or timing.run is None:
        return replace(answer, assumptions=(*answer.assumptions, *rental.assumptions))
    still_open = tuple(part for part in timing.open if part[0] != COST)
    priced = timing._replace(run=replace(timing.run, cost=rental.cost), open=still_open)
    return replace(answer, timing=priced, assumptions=(*answer.assumptions, *rental.assumptions))
