"""Currencies and their dated rates: ``data/currencies.csv``, or those of one's own file."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from functools import cache
from typing import NamedTuple, cast

from fullstep.offers.provider import DATA
from fullstep.quantities import Currency


class Rate(NamedTuple):
    """What one unit of a currency was worth on a day [USD]."""

    usd_for_one: Decimal
    on: date | None
    """None: by definition"""
    source: str


Rates = Mapping[Currency, Rate]


@cache
def default_rates() -> Rates:
    """The rates that come with fullstep.

    >>> default_rates()["EUR"].on
    datetime.date(2025, 9, 5)
    """
    with (DATA / "currencies.csv").open(encoding="utf-8", newline="") as file:
        return {
            cast(Currency, row["currency"]): Rate(
                Decimal(row["usd_for_one"]), date.fromisoformat(row["on"]) if row["on"] else None, row["source"]
            )
            for row in csv.DictReader(file)
        }


def converted(amount: Decimal, source: Currency, target: Currency, rates: Rates) -> Decimal:
    """An amount in another currency, by way of the dollar.

    >>> converted(Decimal(2), "USD", "USD", default_rates())
    Decimal('2')
    """
    return amount if source == target else amount * rates[source].usd_for_one / rates[target].usd_for_one
