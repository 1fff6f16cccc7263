"""What a machine of one's own costs by the hour, by hand."""

from __future__ import annotations

from decimal import Decimal

import pytest

from fullstep.offers.owned import HOURS_A_YEAR, Ownership, owned_per_hour, pays_from_hours, running_per_hour


def own(**changes: object) -> Ownership:
    plain = {"power_kw": "10", "power_price_per_kwh": "0.2", "hosting_per_month": "730.5", "used_share": "1"}
    return Ownership(**{name: None if value is None else Decimal(str(value)) for name, value in (plain | changes).items()})


def test_a_year_has_365_and_a_quarter_days() -> None:
    assert Decimal("365.25") * 24 == HOURS_A_YEAR


def test_power_and_hosting() -> None:
    """10 kW at 0.20 are 2 an hour of work; 730.5 a month are 8766 a year, 1 for each hour: 3. Used by half: hosting costs 2 an hour, 4."""
    assert running_per_hour(own()) == 3
    assert running_per_hour(own(used_share="0.5")) == 4
    assert running_per_hour(own(power_kw=0, hosting_per_month=0)) == 0


def test_a_purchase_is_spread_over_the_hours_of_work() -> None:
    """(200,000 - 24,680) over 4 years at half of the hours: 175,320 / (8766 * 4 * 0.5) = 10, and 4 to run it."""
    assert owned_per_hour(own(used_share="0.5", purchase=200_000, resale=24_680, years=4)) == 14


def test_what_is_there_costs_what_it_takes_to_run() -> None:
    assert owned_per_hour(own(purchase=None)) == running_per_hour(own())


@pytest.mark.parametrize(("rent", "hours"), [("25", 10_000), ("5", None), ("4", None)])
def test_from_when_on_buying_costs_less(rent: str, hours: int | None) -> None:
    """200,000 / (25 - 5) = 10,000 hours; never where renting costs no more than running."""
    assert pays_from_hours(Decimal(200_000), Decimal(5), Decimal(rent)) == hours
