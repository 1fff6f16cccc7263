"""The bill of one job on machines of one provider: lines with quantity and price; what is not known stays unknown."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import ROUND_CEILING, Decimal
from math import inf
from typing import NamedTuple

from fullstep.cost.interruption import Interrupted, Saving, Taking, interrupted
from fullstep.cost.periods import Pause, expected_rounding_seconds, minimum_seconds, pause_between_runs, rounding_seconds
from fullstep.cost.rent import Rent
from fullstep.cost.taking import segments_of
from fullstep.cost.usage import Usage
from fullstep.ledger import Bill, BillLine
from fullstep.offers.provider import egress_cost_usd
from fullstep.quantities import cents

HOUR_SECONDS = 3600.0
MONTH_SECONDS = 8766 * HOUR_SECONDS / 12
_SMALLEST = Decimal("0.000001")
"""quantities are rounded up to so much: a bill is never below price times hours"""
_ZERO = Decimal(0)


class Priced(NamedTuple):
    """A bill and the course of events behind it; all runs together."""

    bill: Bill
    billed_seconds: float
    """of each machine"""
    run_seconds: float
    """from the order to the result of one run, waits included"""
    elapsed_seconds: float
    """from the order to the last result, pauses included as well"""
    interruptions: float
    deviation: Decimal
    """standard deviation of the total by interruptions alone, in the currency of the bill"""

    @property
    def ends(self) -> bool:
        """Interruptions leave it time to get on."""
        return self.elapsed_seconds < inf


class _Course(NamedTuple):
    """One run, and the pause after it; seconds of one machine."""

    run: Interrupted
    pause: Pause
    rounding_seconds: float | None
    minimum_seconds: float


def priced(usage: Usage, rent: Rent) -> Priced:
    """What a job costs.

    ::

        machine hours = runs * (set-up + training + evaluation + saves + interruptions + rounding) + pauses
        total         = machine hours * machines * price + storage + egress

    Example: one run of 2 hours that takes 15 minutes to set up, at 10.00 an hour and by the second: 22.50.

    Args:
        usage: at one end of its bounds
        rent: price and terms

    Valid:
        without taxes, quotas, discounts by volume, and what a provider gives back of an interrupted first hour
    """
    course = _course(usage, rent)
    lines = tuple(_lines(usage, rent, course))
    gaps = usage.runs - 1
    billed = usage.runs * (_period(usage, course) + (course.rounding_seconds or 0.0) + course.minimum_seconds)
    billed += gaps * course.pause.billed_seconds - (gaps * usage.setup_seconds)
    paused = gaps * max(usage.idle_seconds, course.pause.billed_seconds)
    elapsed = usage.setup_seconds + usage.runs * course.run.wall_seconds + paused
    spread = course.run.billed_deviation_seconds * usage.runs**0.5 / HOUR_SECONDS * rent.machines
    deviation = cents(Decimal(repr(spread)) * rent.per_hour) if spread < inf else _ZERO
    once = usage.setup_seconds + course.run.wall_seconds
    return Priced(Bill(rent.currency, lines), billed, once, elapsed, usage.runs * course.run.interruptions, deviation)


def taking_of(usage: Usage, rent: Rent) -> Taking:
    """How the machines are taken away: a notice counts where a whole save fits into it."""
    notice, longest = rent.provider.notice_seconds or 0.0, rent.provider.longest_hours
    return Taking(
        mean_seconds=rent.interrupted_every_seconds or inf,
        cap_seconds=None if longest is None else longest * HOUR_SECONDS,
        notice_seconds=notice if notice >= usage.write_seconds else 0.0,
        restart_seconds=usage.restart_seconds,
        wait_seconds=rent.wait_seconds,
    )


def _course(usage: Usage, rent: Rent) -> _Course:
    work, saving = usage.steps_seconds + usage.evaluation_seconds, Saving(usage.interval_seconds, usage.save_seconds)
    if rent.interruptible:
        run = interrupted(work, saving, taking_of(usage, rent))
    else:
        segments = segments_of(work, saving)
        saves = segments.seconds - work
        run = Interrupted(segments.seconds, 0.0, 0.0, segments.seconds, 0.0, saves, 0.0)
    course = _Course(run, pause_between_runs(usage, rent), 0.0, 0.0)
    if rent.is_own or not run.ends:
        return course
    return course._replace(rounding_seconds=_rounding(usage, rent, course), minimum_seconds=_minimum(usage, rent, course))


def _period(usage: Usage, course: _Course) -> float:
    """One billed period: a run with what starts it [s]."""
    return usage.setup_seconds + course.run.billed_seconds


def _rounding(usage: Usage, rent: Rent, course: _Course) -> float | None:
    step = rent.provider.billing_step_seconds
    if step is None:
        return None
    if rent.interrupted_every_seconds is not None:
        return expected_rounding_seconds(course.run.interruptions, rent.interrupted_every_seconds, step)
    return rounding_seconds(_period(usage, course), step)


def _minimum(usage: Usage, rent: Rent, course: _Course) -> float:
    return minimum_seconds(_period(usage, course) + (course.rounding_seconds or 0.0), rent.provider.minimum_seconds or 0.0)


def _lines(usage: Usage, rent: Rent, course: _Course) -> Iterator[BillLine]:
    run, runs, gaps = course.run, usage.runs, usage.runs - 1
    if not run.ends:
        never = "it never ends: machines are taken before a save is reached"
        yield BillLine("interruptions", None, "machine h", rent.per_hour, None, never)
        return
    again = {"kept": 0.0, "ended": usage.setup_seconds, "stopped": usage.resume_seconds}[course.pause.kind]
    yield _hours("set-up and download", usage.setup_seconds + gaps * again, rent)
    yield _hours("training", runs * usage.steps_seconds, rent)
    if usage.evaluation_seconds:
        yield _hours("evaluation", runs * usage.evaluation_seconds, rent)
    if run.saving_seconds:
        yield _hours("checkpoint stalls", runs * run.saving_seconds, rent)
    if rent.interruptible:
        expected = f"{runs * run.interruptions:,.1f} expected; work done again and restarts"
        yield _hours("interruptions", runs * run.lost_seconds, rent, expected)
        waited = _quantity(runs * (run.wall_seconds - run.billed_seconds), rent.machines)
        yield BillLine("waiting for machines", waited, "machine h", _ZERO, _ZERO, "not billed")
    yield from _pauses(usage, rent, course)
    yield from _billing(rent, course, runs)
    if not rent.is_own:
        yield from _storage(usage, rent, course)


def _pauses(usage: Usage, rent: Rent, course: _Course) -> Iterator[BillLine]:
    gaps = usage.runs - 1
    if gaps and usage.idle_seconds:
        kept = course.pause.kind == "kept"
        how = {"kept": "machines run on", "stopped": "machines are stopped", "ended": "machines are given back and set up again"}
        yield _hours("idle between runs", gaps * usage.idle_seconds if kept else 0.0, rent, how[course.pause.kind])


def _billing(rent: Rent, course: _Course, runs: int) -> Iterator[BillLine]:
    if course.rounding_seconds is None:
        yield BillLine("rounding to billing steps", None, "machine h", rent.per_hour, None, "billing step not known")
    elif course.rounding_seconds > 0:
        yield _hours("rounding to billing steps", runs * course.rounding_seconds, rent)
    if course.minimum_seconds > 0:
        yield _hours("minimum charge", runs * course.minimum_seconds, rent)


def _storage(usage: Usage, rent: Rent, course: _Course) -> Iterator[BillLine]:
    """Disks while it runs, those of stopped machines, what stays afterwards, and what is taken out."""
    provider, gaps = rent.provider, usage.runs - 1
    comes_with = rent.disk_gb is not None and not rent.interruptible and rent.disk_gb * rent.machines >= usage.disk_gb
    stored = usage.setup_seconds + usage.runs * course.run.wall_seconds
    if course.pause.kind == "kept":
        stored += gaps * usage.idle_seconds
    if comes_with:
        yield BillLine("disk while it runs", _gb_months(usage.disk_gb, stored), "GB month", _ZERO, _ZERO, "comes with the machine")
    else:
        yield _disk("disk while it runs", usage.disk_gb, stored, provider.disk_usd_gb_month, rent)
    if gaps and usage.idle_seconds and course.pause.kind == "stopped":
        price = provider.stopped_disk_usd_gb_month or provider.disk_usd_gb_month
        yield _disk("disk of stopped machines", usage.disk_gb, gaps * usage.idle_seconds, price, rent)
    price = provider.disk_usd_gb_month
    monthly = None if price is None else price * rent.for_one_usd * _amount(usage.result_gb)
    yield BillLine("storage afterwards", None, "month", monthly, None, "as long as it stays there", later=True)
    yield _egress(usage, rent)


def _egress(usage: Usage, rent: Rent) -> BillLine:
    tiers, gigabytes = rent.provider.egress, _amount(usage.runs * usage.result_gb)
    if tiers is None:
        return BillLine("egress of the result", gigabytes, "GB", None, None, "price not known")
    amount = egress_cost_usd(tiers, gigabytes) * rent.for_one_usd
    return BillLine("egress of the result", gigabytes, "GB", amount / gigabytes if gigabytes else tiers[0].usd_per_gb, amount)


def _disk(what: str, gigabytes: float, seconds: float, usd_gb_month: Decimal | None, rent: Rent) -> BillLine:
    quantity = _gb_months(gigabytes, seconds)
    if usd_gb_month is None:
        return BillLine(what, quantity, "GB month", None, None, "price not known")
    price = usd_gb_month * rent.for_one_usd
    return BillLine(what, quantity, "GB month", price, quantity * price)


def _hours(what: str, seconds: float, rent: Rent, note: str = "") -> BillLine:
    quantity = _quantity(seconds, rent.machines)
    return BillLine(what, quantity, "machine h", rent.per_hour, quantity * rent.per_hour, note)


def _quantity(seconds: float, machines: int) -> Decimal:
    """Machine hours."""
    return _amount(seconds / HOUR_SECONDS * machines)


def _gb_months(gigabytes: float, seconds: float) -> Decimal:
    return _amount(gigabytes * seconds / MONTH_SECONDS)


def _amount(value: float) -> Decimal:
    return Decimal(repr(value)).quantize(_SMALLEST, ROUND_CEILING)
