"""What an hour on a machine costs that one has or would buy."""

from __future__ import annotations

from decimal import Decimal
from typing import NamedTuple

HOURS_A_YEAR = Decimal("8766")
"""365.25 days"""
_MONTHS = 12


class Ownership(NamedTuple):
    """A machine of one's own; amounts in one currency."""

    power_kw: Decimal
    """that the whole machine draws from the wall in training, cooling included"""
    power_price_per_kwh: Decimal
    hosting_per_month: Decimal
    used_share: Decimal
    """of all hours, in which the machine has work: what is paid by the year is spread over these"""
    purchase: Decimal | None = None
    """None: it is there already, and its price is no reason any more"""
    resale: Decimal = Decimal(0)
    years: Decimal = Decimal(1)


def running_per_hour(own: Ownership) -> Decimal:
    """``power_kw * price + 12 * hosting / (8766 * used share)``, per hour of work.

    Example: 10 kW at 0.20 and 730.5 a month, used half of the time: ``2 + 12 * 730.5 / 4383`` = 4.

    >>> running_per_hour(Ownership(Decimal(10), Decimal("0.2"), Decimal("730.5"), Decimal("0.5")))
    Decimal('4.0')
    """
    return own.power_kw * own.power_price_per_kwh + _MONTHS * own.hosting_per_month / (HOURS_A_YEAR * own.used_share)


def owned_per_hour(own: Ownership) -> Decimal:
    """``running + (purchase - resale) / (8766 * years * used share)``, per hour of work; of a machine that is there only running.

    Example: 87,660 over 5 years at half of the hours, nothing else: ``87660 / (8766 * 5 * 0.5)`` = 4.

    >>> owned_per_hour(Ownership(Decimal(0), Decimal(0), Decimal(0), Decimal("0.5"), Decimal(87660), Decimal(0), Decimal(5)))
    Decimal('4')
    """
    running = running_per_hour(own)
    if own.purchase is None:
        return running
    return running + (own.purchase - own.resale) / (HOURS_A_YEAR * own.years * own.used_share)


def pays_from_hours(purchase: Decimal, running: Decimal, rent: Decimal) -> Decimal | None:
    """Hours of work from which buying costs less than renting: ``purchase / (rent - running)``; None: never.

    >>> pays_from_hours(Decimal(200_000), Decimal(5), Decimal(25))
    Decimal('10000')
    """
    return None if rent <= running else purchase / (rent - running)
