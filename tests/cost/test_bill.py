"""Bills against hand arithmetic, and what has to hold of every bill."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from math import exp, inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fullstep.cost.bill import Priced, priced
from fullstep.cost.periods import MONTH_SECONDS, minimum_per_interruption_seconds
from fullstep.cost.rent import Rent
from fullstep.cost.usage import Usage
from fullstep.ledger import BillLine
from fullstep.offers.provider import Provider, parse_tiers

HOUR = 3600.0
EXACT = Provider(name="exact", billing_step_seconds=1.0, texts={})
USAGE = Usage(
    steps_seconds=20 * HOUR, evaluation_seconds=0.0, save_seconds=0.0, write_seconds=0.0, last_save_seconds=0.0, interval_seconds=HOUR,
    start_seconds=600.0, install_seconds=300.0, download_seconds=500.0, load_seconds=100.0, restore_seconds=200.0, disk_gb=100.0,
    result_gb=16.0,
)  # fmt: skip
"""20 hours of training, 25 minutes of set-up"""


def rent(per_hour: str = "10", **more: Any) -> Rent:
    known: dict[str, Any] = {"machines": 1, "currency": "USD", "for_one_usd": Decimal(1), "provider": EXACT, **more}
    return Rent(per_hour=Decimal(per_hour), **known)


def line(found: Priced, what: str) -> BillLine:
    return next(each for each in found.bill.lines if each.what == what)


def amount(found: Priced, what: str) -> Decimal:
    value = line(found, what).amount
    assert value is not None
    return value


def test_hours_times_price() -> None:
    """20 h and 25 min at 10: 204.17, on two machines twice as much."""
    assert float(priced(USAGE, rent()).bill.total) == pytest.approx(10 * (20 + 25 / 60), abs=1e-4)
    assert float(priced(USAGE, rent(machines=2)).bill.total) == pytest.approx(20 * (20 + 25 / 60), abs=1e-4)


def test_every_part_has_its_line() -> None:
    """19 h of training and one of evaluation, a save of 90 s each hour between them and one at the end: 20 saves are half an hour."""
    found = priced(replace(USAGE, steps_seconds=19 * HOUR, evaluation_seconds=HOUR - 90, save_seconds=90.0, last_save_seconds=90.0), rent())
    assert amount(found, "training") == 190
    assert float(amount(found, "evaluation")) == pytest.approx(9.75)
    assert amount(found, "checkpoint stalls") == 5
    assert float(amount(found, "set-up and download")) == pytest.approx(250 / 60, abs=1e-4)
    assert found.run_seconds == found.elapsed_seconds == 1500 + 20 * HOUR - 90 + 1800
    assert found.interruptions == 0 and found.deviation == 0


@pytest.mark.parametrize(("step", "extra_minutes"), [(1.0, 0), (60.0, 0), (3600.0, 35)])
def test_rounding_to_the_billing_step(step: float, extra_minutes: float) -> None:
    """20 h 25 min are 21 by the hour."""
    found = priced(USAGE, rent(provider=replace(EXACT, billing_step_seconds=step)))
    assert float(found.bill.total) == pytest.approx(10 * (20 * 60 + 25 + extra_minutes) / 60, abs=1e-4)


def test_an_unknown_billing_step_is_unknown_with_its_price() -> None:
    found = line(priced(USAGE, rent(provider=Provider(name="silent", texts={}))), "rounding to billing steps")
    assert (found.quantity, found.unit_price, found.amount) == (None, 10, None)


def test_a_minimum_charge() -> None:
    """5 minutes of training and 25 of set-up, billed as an hour."""
    found = priced(replace(USAGE, steps_seconds=300.0), rent(provider=replace(EXACT, minimum_seconds=HOUR)))
    assert float(found.bill.total) == pytest.approx(10, abs=1e-4)
    assert float(amount(found, "minimum charge")) == pytest.approx(5, abs=1e-4)


def test_a_minimum_and_a_step_are_not_charged_twice() -> None:
    """25 minutes of set-up and 11 of training by the hour, an hour at least: one hour."""
    hourly = replace(EXACT, billing_step_seconds=HOUR, minimum_seconds=HOUR)
    assert float(priced(replace(USAGE, steps_seconds=660.0), rent(provider=hourly)).bill.total) == pytest.approx(10, abs=1e-4)


def test_machines_that_are_kept_are_one_billed_period() -> None:
    """Five runs of 5 minutes without a pause after 25 minutes of set-up: 50 minutes, one hour. Given back between them: five hours."""
    hourly = replace(EXACT, billing_step_seconds=HOUR, minimum_seconds=HOUR, stopped="no_stop")
    usage = replace(USAGE, steps_seconds=300.0, runs=5)
    assert float(priced(usage, rent(provider=hourly)).bill.total) == pytest.approx(10, abs=1e-4)
    apart = priced(replace(usage, idle_seconds=24 * HOUR), rent(provider=hourly))
    assert float(apart.bill.total) == pytest.approx(50, abs=1e-3)
    assert apart.billed_seconds == pytest.approx(5 * HOUR)


def test_the_billing_step_decides_what_is_done_in_a_pause() -> None:
    """Three runs of 53 min, pauses of 12, a set-up of 10 by the hour: kept are 3.23 h, so 4; given back between them three times 2."""
    hourly = replace(EXACT, billing_step_seconds=HOUR, minimum_seconds=HOUR, stopped="billed")
    usage = replace(
        USAGE, steps_seconds=53 * 60.0, start_seconds=600.0, install_seconds=0.0, download_seconds=0.0, load_seconds=0.0, runs=3,
        idle_seconds=12 * 60.0,
    )  # fmt: skip
    found = priced(usage, rent(provider=hourly))
    assert "run on" in line(found, "idle between runs").note
    assert float(found.bill.total) == pytest.approx(40, abs=1e-3)


def test_a_step_that_has_begun_meets_a_minimum_of_one() -> None:
    assert minimum_per_interruption_seconds(1.5 * HOUR, HOUR, HOUR) == 0.0
    # two steps at least: a life within the first, 1 - e**(-1), is billed one and lacks one
    assert minimum_per_interruption_seconds(HOUR, 2 * HOUR, HOUR) == pytest.approx(HOUR * (1 - exp(-1)))
    assert minimum_per_interruption_seconds(HOUR, HOUR, 1.0) == pytest.approx(HOUR / exp(1), rel=1e-3)


def test_egress_of_several_runs_crosses_a_tier() -> None:
    """Three times 16 GB: 40 are free, 8 cost 0.10."""
    terms = replace(EXACT, egress=parse_tiers("40:0|:0.10"))
    assert amount(priced(replace(USAGE, runs=3), rent(provider=terms)), "egress of the result") == Decimal("0.8")


def test_a_free_disk_of_stopped_machines_is_free() -> None:
    terms = replace(EXACT, stopped="compute_free", disk_usd_gb_month=Decimal("0.10"), stopped_disk_usd_gb_month=Decimal(0))
    found = priced(replace(USAGE, runs=2, idle_seconds=100 * HOUR), rent(provider=terms))
    assert amount(found, "disk of stopped machines") == 0


def test_rounding_of_a_short_run_that_is_seldom_interrupted() -> None:
    """35 minutes by the hour: hardly anything comes in between, so that 25 are added, not half an hour."""
    usage = replace(USAGE, steps_seconds=600.0)
    found = priced(usage, rent(provider=replace(EXACT, billing_step_seconds=HOUR), interrupted_every_seconds=1e9))
    assert float(amount(found, "rounding to billing steps")) == pytest.approx(10 * 25 / 60, abs=1e-3)


@pytest.mark.parametrize(
    ("stopped", "idle_hours", "kind", "hours"),
    [
        ("compute_free", 5.0, "stopped", 700 / 3600),  # boot and load
        ("no_stop", 5.0, "ended", 1500 / 3600),  # everything anew
        ("billed", 5.0, "ended", 1500 / 3600),
        (None, 5.0, "ended", 1500 / 3600),
        ("no_stop", 0.25, "kept", 0.25),  # shorter than setting it up
    ],
)
def test_pauses_between_runs(stopped: Any, idle_hours: float, kind: str, hours: float) -> None:
    usage = replace(USAGE, runs=3, idle_seconds=idle_hours * HOUR)
    terms = rent(provider=replace(EXACT, stopped=stopped, disk_usd_gb_month=Decimal(0)))
    words = {"stopped": "are stopped", "ended": "are given back", "kept": "run on"}[kind]
    assert words in line(priced(usage, terms), "idle between runs").note
    assert float(priced(usage, terms).bill.total) == pytest.approx(10 * (60 + 25 / 60 + 2 * hours), abs=1e-4)


def test_disks_and_egress() -> None:
    """100 GB at 0.10 a month for 20 h 25 min; 16 GB out, of which one is free, at 0.09."""
    terms = replace(EXACT, disk_usd_gb_month=Decimal("0.10"), egress=parse_tiers("1:0|:0.09"))
    found = priced(USAGE, rent(provider=terms))
    seconds = 1500 + 20 * HOUR
    assert float(amount(found, "disk while it runs")) == pytest.approx(100 * 0.10 * seconds / MONTH_SECONDS, rel=1e-4)
    assert amount(found, "egress of the result") == Decimal("1.35")
    after = line(found, "storage afterwards")
    assert (after.quantity, after.unit_price, after.amount) == (None, Decimal("1.6"), None)


def test_disks_of_stopped_machines_at_their_own_price() -> None:
    terms = replace(EXACT, stopped="compute_free", disk_usd_gb_month=Decimal("0.01"), stopped_disk_usd_gb_month=Decimal("0.02"))
    found = priced(replace(USAGE, runs=2, idle_seconds=100 * HOUR), rent(provider=terms))
    assert float(amount(found, "disk of stopped machines")) == pytest.approx(100 * 0.02 * 100 * HOUR / MONTH_SECONDS, rel=1e-4)


def test_a_stopped_machine_pays_its_disk_and_may_be_dearer_than_a_new_one() -> None:
    """100 GB at 0.20 for 1,000 h are 27, and to start again 2; to set it all up 4."""
    terms = replace(EXACT, stopped="compute_free", disk_usd_gb_month=Decimal("0.10"), stopped_disk_usd_gb_month=Decimal("0.20"))
    usage = replace(USAGE, runs=2, idle_seconds=1000 * HOUR)
    assert "given back" in line(priced(usage, rent(provider=terms)), "idle between runs").note
    assert "stopped" in line(priced(replace(usage, idle_seconds=10 * HOUR), rent(provider=terms)), "idle between runs").note


def test_what_a_stopped_disk_costs_has_to_be_known() -> None:
    usage = replace(USAGE, runs=2, idle_seconds=10 * HOUR)
    found = priced(usage, rent(provider=replace(EXACT, stopped="compute_free")))
    assert "given back" in line(found, "idle between runs").note


def test_what_is_not_known_is_unknown_and_not_in_the_total() -> None:
    found = priced(USAGE, rent())
    assert {each.what for each in found.bill.unknown} == {"disk while it runs", "egress of the result"}
    assert line(found, "egress of the result").quantity == 16 and line(found, "egress of the result").unit_price is None


def test_a_disk_that_comes_with_the_machine_is_free() -> None:
    assert amount(priced(USAGE, rent(disk_gb=2000.0)), "disk while it runs") == 0
    assert line(priced(USAGE, rent(disk_gb=50.0)), "disk while it runs").amount is None
    spot = rent(disk_gb=2000.0, interrupted_every_seconds=24 * HOUR)  # its own disk is lost with it
    assert line(priced(USAGE, spot), "disk while it runs").amount is None


def test_a_machine_of_ones_own_pays_its_hours_alone() -> None:
    found = priced(USAGE, rent(is_own=True, provider=Provider(name="own", texts={})))
    assert not found.bill.unknown and float(found.bill.total) == pytest.approx(10 * (20 + 25 / 60), abs=1e-4)


def test_prices_of_storage_in_the_currency_of_the_bill() -> None:
    terms = replace(EXACT, egress=parse_tiers(":0.10"))
    found = priced(USAGE, rent(currency="RUB", for_one_usd=Decimal(80), provider=terms))
    assert amount(found, "egress of the result") == 128


def test_interruptions_by_their_expected_time() -> None:
    """20 h at 10 an hour, saves of 2 min every half hour, restarts of 10, waits of 30, taken away every 4 h: by hand
    ``4 e**(1/24) (39 (e**(8/60) - 1) + e**(1/8) - 1)`` = 23.752 h, a mean of 4 h makes 5.938 interruptions, 2.969 h of waiting."""
    usage = replace(
        USAGE, save_seconds=120.0, write_seconds=120.0, interval_seconds=1800.0, start_seconds=600.0, install_seconds=0.0,
        load_seconds=0.0, restore_seconds=0.0, download_seconds=0.0,
    )  # fmt: skip
    found = priced(usage, rent(interrupted_every_seconds=4 * HOUR, wait_seconds=1800.0))
    assert found.worked_seconds / HOUR == pytest.approx(23.752, abs=1e-3)
    assert found.billed_seconds / HOUR == pytest.approx(23.752 + 1 / 6, abs=2e-3)  # seconds that have begun are billed
    assert found.interruptions == pytest.approx(5.938, abs=1e-3)
    assert found.run_seconds / HOUR == pytest.approx(23.752 + 2.969 + 1 / 6, abs=2e-3)
    assert float(amount(found, "interruptions")) == pytest.approx(10 * (23.752 - 20 - 39 / 30), abs=1e-2)
    assert line(found, "waiting for machines").amount == 0
    # Daly: sqrt(2 * 2 min * 240 min) (1 + x/3 + x**2/9) - 2 min with x = sqrt(2 / 480): 29.7 min
    assert "5.9 expected" in line(found, "interruptions").note and "a save every 30 min loses least" in line(found, "interruptions").note


def test_a_notice_counts_where_a_whole_save_fits() -> None:
    usage = replace(USAGE, save_seconds=10.0, write_seconds=100.0)
    costs = [
        priced(usage, rent(provider=replace(EXACT, notice_seconds=notice), interrupted_every_seconds=4 * HOUR)).bill.total
        for notice in (0.0, 30.0, 120.0)
    ]
    assert costs[0] == costs[1] > costs[2]


def test_each_machine_that_is_taken_pays_its_minimum() -> None:
    """Lives of one minimum in the mean: each that ends early adds (1 - (1 - 1/e)) of it."""
    terms = replace(EXACT, minimum_seconds=2 * HOUR)
    found = priced(USAGE, rent(provider=terms, interrupted_every_seconds=2 * HOUR))
    assert float(amount(found, "minimum charge")) == pytest.approx(10 * found.interruptions * 2 / exp(1), rel=1e-4)


def test_absurd_amounts_are_no_reason_to_fail() -> None:
    assert priced(replace(USAGE, steps_seconds=1e24, runs=1_000_000), rent()).bill.total > 10**24


def test_what_never_ends_says_so() -> None:
    found = priced(replace(USAGE, interval_seconds=20 * HOUR), rent(interrupted_every_seconds=60.0))
    assert not found.ends and found.bill.lines[0].amount is None and "never ends" in found.bill.lines[0].note
    assert found.run_seconds == found.elapsed_seconds == found.billed_seconds == inf


USAGES = st.builds(
    replace,
    st.just(USAGE),
    steps_seconds=st.floats(60, 400 * HOUR),
    evaluation_seconds=st.floats(0, 10 * HOUR),
    save_seconds=st.floats(0, 600),
    last_save_seconds=st.floats(0, 600),
    interval_seconds=st.floats(600, 4 * HOUR),
    runs=st.integers(1, 5),
    idle_seconds=st.floats(0, 48 * HOUR),
)
PRICES = st.decimals(min_value=Decimal("0.05"), max_value=Decimal(200), places=3)
MEANS = st.none() | st.floats(1.5 * HOUR, 200 * HOUR)
STEPS = st.sampled_from([None, 1.0, 60.0, 3600.0])


@settings(deadline=None)
@given(usage=USAGES, price=PRICES, mean=MEANS, step=STEPS, machines=st.integers(1, 8))
def test_a_bill_is_never_below_price_times_hours(
    usage: Usage, price: Decimal, mean: float | None, step: float | None, machines: int
) -> None:
    terms = rent(str(price), machines=machines, provider=replace(EXACT, billing_step_seconds=step), interrupted_every_seconds=mean)
    found = priced(usage, terms)
    worked = usage.runs * (usage.steps_seconds + usage.evaluation_seconds) / HOUR * machines
    assert not found.ends or float(found.bill.total) >= float(price) * worked * (1 - 1e-12)
    assert all(each.amount is None or each.amount >= 0 for each in found.bill.lines)


@settings(deadline=None)
@given(usage=USAGES, means=st.tuples(st.floats(HOUR, 300 * HOUR), st.floats(HOUR, 300 * HOUR)), cap=st.none() | st.just(24.0))
def test_longer_without_interruption_never_costs_more(usage: Usage, means: tuple[float, float], cap: float | None) -> None:
    """A cap stops each life at the same place of a segment, where chance may happen to stop it at a better one: by a segment at most."""
    often, seldom = sorted(means)
    terms = rent(provider=replace(EXACT, longest_hours=cap))
    costs = [priced(usage, terms._replace(interrupted_every_seconds=mean)) for mean in (often, seldom)]
    segment = float(terms.per_hour) * (usage.interval_seconds + usage.save_seconds) / HOUR
    at_the_cap = 0.0 if cap is None else costs[1].interruptions * segment
    assert _total(costs[1]) <= _total(costs[0]) * (1 + 1e-9) + 1e-3 + at_the_cap


@settings(deadline=None)
@given(usage=USAGES, price=PRICES, mean=MEANS)
def test_rounding_only_rises(usage: Usage, price: Decimal, mean: float | None) -> None:
    totals = [
        _total(priced(usage, rent(str(price), provider=replace(EXACT, billing_step_seconds=step), interrupted_every_seconds=mean)))
        for step in (1.0, 60.0, 3600.0)
    ]
    assert totals[0] <= totals[1] + float(price) * 1e-2 and totals[1] <= totals[2] + float(price) / 60


@settings(deadline=None)
@given(usage=USAGES, prices=st.tuples(PRICES, PRICES), mean=MEANS)
def test_a_cheaper_machine_on_the_same_terms_never_costs_more(usage: Usage, prices: tuple[Decimal, Decimal], mean: float | None) -> None:
    low, high = sorted(prices)
    assert _total(priced(usage, rent(str(low), interrupted_every_seconds=mean))) <= _total(
        priced(usage, rent(str(high), interrupted_every_seconds=mean))
    )


def _total(found: Priced) -> float:
    return float(found.bill.total) if found.ends else inf
