"""Rates and conversions by hand."""

from __future__ import annotations

from decimal import Decimal

from fullstep.offers.currency import Rate, converted, default_rates
from fullstep.quantities import CURRENCIES


def test_every_currency_has_a_dated_rate() -> None:
    rates = default_rates()
    assert set(rates) == set(CURRENCIES)
    assert all(rate.usd_for_one > 0 and (rate.on is not None or currency == "USD") for currency, rate in rates.items())


def test_the_bank_of_russia_of_one_day() -> None:
    """94.7754 roubles a euro and 81.2977 a dollar: 94.7754 / 81.2977 = 1.16578; 1 / 81.2977 = 0.0123005."""
    rates = default_rates()
    assert abs(rates["EUR"].usd_for_one - Decimal("94.7754") / Decimal("81.2977")) < Decimal("0.00001")
    assert abs(rates["RUB"].usd_for_one - 1 / Decimal("81.2977")) < Decimal("0.0000001")


def test_by_way_of_the_dollar() -> None:
    rates = {"USD": Rate(Decimal(1), None, ""), "EUR": Rate(Decimal("1.25"), None, ""), "RUB": Rate(Decimal("0.0125"), None, "")}
    assert converted(Decimal(8), "EUR", "USD", rates) == 10
    assert converted(Decimal(10), "USD", "EUR", rates) == 8
    assert converted(Decimal(1), "EUR", "RUB", rates) == 100
    assert converted(Decimal("0.1"), "RUB", "RUB", {}) == Decimal("0.1")
