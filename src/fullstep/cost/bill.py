"""The bill of one job on machines of one provider: lines with quantity and price; what is not known stays unknown."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import ROUND_CEILING, Decimal
from math import inf, sqrt
from typing import NamedTuple

from fullstep.cost.interruption import Interrupted, daly_interval_seconds, interrupted
from fullstep.cost.periods import (
    MONTH_SECONDS,
    Pause,
    billed_periods,
    expected_rounding_seconds,
    minimum_per_interruption_seconds,
    minimum_seconds,
    pause_disk_cost,
    possible_pauses,
    rounding_seconds,
    stopped_disk_usd_gb_month,
)
from fullstep.cost.rent import Rent
from fullstep.cost.taking import Saving, Taking
from fullstep.cost.usage import Usage
from fullstep.ledger import Bill, BillLine
from fullstep.offers.provider import egress_cost_usd
from fullstep.quantities import HOUR_SECONDS, WIDE, cents

_SMALLEST = Decimal("0.000001")
"""quantities are rounded up to so much: a bill is never below price times hours"""
_ZERO = Decimal(0)


class Priced(NamedTuple):
    """A bill and the course of events behind it."""

    bill: Bill
    worked_seconds: float
    """billed for the work of one run on each machine: training, evaluation, saves, interruptions"""
    billed_seconds: float
    """of each machine, all runs together"""
    run_seconds: float
    """from the order to the result of one run, waits included"""
    elapsed_seconds: float
    """from the order to the last result, pauses included as well"""
    interruptions: float
    """expected in all runs"""
    deviation: Decimal
    """standard deviation of the total by interruptions alone, in the currency of the bill"""

    @property
    def ends(self) -> bool:
        """Interruptions leave it time to get on."""
        return self.elapsed_seconds < inf


class _Course(NamedTuple):
    """One run, the pause after it, and what billing adds to all of them; seconds of one machine."""

    run: Interrupted
    pause: Pause
    rounding_seconds: float | None
    minimum_seconds: float


def priced(usage: Usage, rent: Rent) -> Priced:
    """What a job costs.

    ::

        machine hours = set-up + runs * (training + evaluation + saves + interruptions) + pauses + rounding + minimum charges
        total         = machine hours * machines * price + storage + egress

    Example: one run of 2 hours that takes 15 minutes to set up, at 10.00 an hour and by the second: 22.50.

    Args:
        usage: at one end of its bounds
        rent: price and terms

    Valid:
        without taxes, quotas, discounts by volume, and what a provider gives back of an interrupted first hour
    """
    course = _course(usage, rent)
    run, gaps = course.run, usage.runs - 1
    periods = sum(seconds * count for seconds, count in billed_periods(run.billed_seconds, course.pause, usage))
    once = usage.setup_seconds + run.wall_seconds
    between = max(usage.idle_seconds, course.pause.billed_seconds)
    spread = run.billed_deviation_seconds * sqrt(usage.runs) / HOUR_SECONDS * rent.machines
    return Priced(
        bill=Bill(rent.currency, tuple(_lines(usage, rent, course))),
        worked_seconds=run.billed_seconds,
        billed_seconds=periods + (course.rounding_seconds or 0.0) + course.minimum_seconds,
        run_seconds=once,
        elapsed_seconds=once + (gaps * (between + run.wall_seconds) if gaps else 0.0),
        interruptions=usage.runs * run.interruptions,
        deviation=cents(Decimal(repr(spread)) * rent.per_hour) if spread < inf else _ZERO,
    )


def saving_of(usage: Usage) -> Saving:
    """How a run saves."""
    return Saving(usage.interval_seconds, usage.save_seconds, usage.write_seconds)


def taking_of(usage: Usage, rent: Rent) -> Taking:
    """How the machines are taken away; those that nobody takes stay for ever."""
    if rent.interrupted_every_seconds is None:
        return Taking(inf)
    longest = rent.provider.longest_hours
    return Taking(
        mean_seconds=rent.interrupted_every_seconds,
        cap_seconds=None if longest is None else longest * HOUR_SECONDS,
        notice_seconds=rent.provider.notice_seconds or 0.0,
        restart_seconds=usage.restart_seconds,
        wait_seconds=rent.wait_seconds,
    )


def _course(usage: Usage, rent: Rent) -> _Course:
    """The run, and of what may be done between runs that which costs least in all: hours, rounding, minimum charges and disks."""
    run = interrupted(usage.work_seconds, saving_of(usage), taking_of(usage, rent))
    courses = [_billed(usage, rent, _Course(run, pause, 0.0, 0.0)) for pause in possible_pauses(usage, rent)]
    if usage.runs == 1 or not run.ends:
        return courses[0]
    return min(courses, key=lambda course: _hours_and_disks(usage, rent, course))


def _hours_and_disks(usage: Usage, rent: Rent, course: _Course) -> float:
    """What differs by what is done between runs, in the currency of the bill."""
    periods = sum(seconds * count for seconds, count in billed_periods(course.run.billed_seconds, course.pause, usage))
    hours = (periods + (course.rounding_seconds or 0.0) + course.minimum_seconds) / HOUR_SECONDS
    return hours * float(rent.per_hour) * rent.machines + (usage.runs - 1) * pause_disk_cost(course.pause, usage, rent)


def _billed(usage: Usage, rent: Rent, course: _Course) -> _Course:
    """With what billing adds to its periods."""
    run, provider = course.run, rent.provider
    if rent.is_own or not run.ends:
        return course
    rounding: float | None = 0.0
    minimum, least, step = provider.minimum_seconds or 0.0, 0.0, provider.billing_step_seconds
    for seconds, count in billed_periods(run.billed_seconds, course.pause, usage):
        extra = _rounding(seconds, run, rent, usage.runs / count if course.pause.kind == "kept" else 1.0)
        least += count * minimum_seconds(seconds + (extra or 0.0), minimum)
        rounding = None if rounding is None or extra is None else rounding + count * extra
    if rent.interrupted_every_seconds is not None and minimum:
        each = minimum_per_interruption_seconds(rent.interrupted_every_seconds, minimum, step or 0.0)
        least += usage.runs * run.interruptions * each
    return course._replace(rounding_seconds=rounding, minimum_seconds=least)


def _rounding(period_seconds: float, run: Interrupted, rent: Rent, runs: float) -> float | None:
    """Of one billed period in which so many runs are made; None: the billing step is not known."""
    step = rent.provider.billing_step_seconds
    if step is None:
        return None
    if rent.interrupted_every_seconds is None:
        return rounding_seconds(period_seconds, step)
    undisturbed = period_seconds - runs * run.lost_seconds
    return expected_rounding_seconds(undisturbed, runs * run.interruptions, rent.interrupted_every_seconds, step)


def _lines(usage: Usage, rent: Rent, course: _Course) -> Iterator[BillLine]:
    run, runs, gaps = course.run, usage.runs, usage.runs - 1
    if not run.ends:
        never = "it never ends: machines are taken before a save is reached"
        yield BillLine("interruptions", None, "machine h", rent.per_hour, None, never)
        return
    yield _hours("set-up and download", usage.setup_seconds + gaps * course.pause.again_seconds, rent)
    yield _hours("training", runs * usage.steps_seconds, rent)
    if usage.evaluation_seconds:
        yield _hours("evaluation", runs * usage.evaluation_seconds, rent)
    if saves := run.saving_seconds + usage.last_save_seconds:
        yield _hours("checkpoint stalls", runs * saves, rent)
    if rent.interruptible:
        yield _hours("interruptions", runs * run.lost_seconds, rent, _interruption_words(usage, rent, runs * run.interruptions))
        waited = _quantity(runs * (run.wall_seconds - run.billed_seconds), rent.machines)
        yield BillLine("waiting for machines", waited, "machine h", _ZERO, _ZERO, "not billed")
    yield from _pauses(usage, rent, course)
    yield from _billing(rent, course)
    if not rent.is_own:
        yield from _storage(usage, rent, course)


def _interruption_words(usage: Usage, rent: Rent, interruptions: float) -> str:
    """How many, and how often one would have to save for them to cost least."""
    expected = f"{interruptions:,.1f} expected; work done again and restarts"
    if not usage.save_seconds or rent.interrupted_every_seconds is None:
        return expected
    best = daly_interval_seconds(usage.save_seconds, rent.interrupted_every_seconds)
    return f"{expected}; a save every {max(1.0, best / 60):,.0f} min loses least"


def _pauses(usage: Usage, rent: Rent, course: _Course) -> Iterator[BillLine]:
    gaps = usage.runs - 1
    if gaps and usage.idle_seconds:
        how = {"kept": "machines run on", "stopped": "machines are stopped", "ended": "machines are given back and set up again"}
        yield _hours("idle between runs", gaps * course.pause.idle_seconds, rent, how[course.pause.kind])


def _billing(rent: Rent, course: _Course) -> Iterator[BillLine]:
    if course.rounding_seconds is None:
        yield BillLine("rounding to billing steps", None, "machine h", rent.per_hour, None, "billing step not known")
    elif course.rounding_seconds > 0:
        yield _hours("rounding to billing steps", course.rounding_seconds, rent)
    if course.minimum_seconds > 0:
        yield _hours("minimum charge", course.minimum_seconds, rent)


def _storage(usage: Usage, rent: Rent, course: _Course) -> Iterator[BillLine]:
    """Disks while it runs, those of stopped machines, what stays afterwards, and what is taken out."""
    provider, gaps = rent.provider, usage.runs - 1
    comes_with = rent.disk_gb is not None and not rent.interruptible and rent.disk_gb * rent.machines >= usage.disk_gb
    stored = usage.setup_seconds + usage.runs * course.run.wall_seconds
    stored += gaps * course.pause.billed_seconds
    if comes_with:
        yield BillLine("disk while it runs", _gb_months(usage.disk_gb, stored), "GB month", _ZERO, _ZERO, "comes with the machine")
    else:
        yield _disk("disk while it runs", usage.disk_gb, stored, provider.disk_usd_gb_month, rent)
    if gaps and usage.idle_seconds and course.pause.kind == "stopped":
        yield _disk("disk of stopped machines", usage.disk_gb, gaps * usage.idle_seconds, stopped_disk_usd_gb_month(provider), rent)
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
    return Decimal(repr(value)).quantize(_SMALLEST, ROUND_CEILING, WIDE)
