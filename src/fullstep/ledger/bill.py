"""A bill: a list of lines. What is not known is None and named, never zero."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import NamedTuple

from fullstep.quantities import Bounds, Currency


class BillLine(NamedTuple):
    """One thing that is paid for; amounts in the currency of the bill."""

    what: str
    quantity: Decimal | None
    unit: str
    unit_price: Decimal | None
    amount: Decimal | None
    """``quantity * unit price``, or by tiers; None: one of them is not known"""
    note: str = ""
    later: bool = False
    """paid for after the job, as long as one likes: no part of its total"""


class Bill(NamedTuple):
    """All that one job costs on one kind of machine."""

    currency: Currency
    lines: tuple[BillLine, ...]

    @property
    def total(self) -> Decimal:
        """Of all lines that are known."""
        return sum((line.amount for line in self.lines if line.amount is not None), Decimal(0))

    @property
    def unknown(self) -> tuple[BillLine, ...]:
        """Lines that the total lacks."""
        return tuple(line for line in self.lines if line.amount is None and not line.later)


class Cost(NamedTuple):
    """What a job costs, with the bill of its likely course."""

    low: Decimal
    likely: Decimal
    high: Decimal | None
    """None: it may never end"""
    bill: Bill
    hours: Bounds
    """from the order to the last result: all runs and the pauses between them"""
    interruptions: float
    """expected in all runs; 0 on machines that nobody takes away"""
    deviation: Decimal
    """standard deviation of the likely total by interruptions alone"""
    at: str = ""
    """whose machines, in words"""
    seen_on: date | None = None
    """when their price was seen"""
