"""Money: decimal amounts with their currency."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Literal, get_args

Currency = Literal["USD", "EUR", "RUB"]
CURRENCIES: tuple[Currency, ...] = get_args(Currency)
_SIGNS: dict[Currency, str] = {"USD": "$", "EUR": "€", "RUB": "₽"}
_CENT = Decimal("0.01")
WIDE = Context(prec=80)
"""for rounding to places: sums beyond 10^20 are absurd, and no reason to fail"""


def cents(amount: Decimal) -> Decimal:
    """Rounded to hundredths, halves up.

    >>> cents(Decimal("2.345"))
    Decimal('2.35')
    """
    return amount.quantize(_CENT, ROUND_HALF_UP, WIDE)


def money(amount: Decimal, currency: Currency) -> str:
    """For people: whole units from a hundred on, hundredths below, two digits where it is less than a tenth.

    >>> money(Decimal("1480.2"), "USD"), money(Decimal("0.2"), "EUR"), money(Decimal("0.0713"), "RUB")
    ('$1,480', '€0.20', '₽0.071')
    """
    sign = _SIGNS[currency]
    if abs(amount) >= 100:
        return f"{sign}{amount.quantize(Decimal(1), ROUND_HALF_UP, WIDE):,}"
    if abs(amount) >= Decimal("0.1") or amount == 0:
        return f"{sign}{cents(amount)}"
    return f"{sign}{amount:.2g}" if abs(amount) >= Decimal("0.0001") else f"{sign}{amount:.1e}"
