"""The keys of ``machines.toml``: what each allows, and one check per kind of value."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any, NamedTuple

from fullstep.errors import Fault, InputError
from fullstep.hardware import find_card
from fullstep.job.refusal import Refused, describe, did_you_mean
from fullstep.offers.offer import MOST_GPUS, MOST_OF_A_MACHINE, MOST_PER_HOUR
from fullstep.quantities import CURRENCIES

_AMOUNT = re.compile(r"[0-9]{1,13}(?:\.[0-9]{1,6})?\Z")
_MOST = 10**13
_LONGEST_TEXT = 120
_STOPPED = ("compute_free", "billed", "no_stop")


class FileKey(NamedTuple):
    """One key of a table of the file."""

    allowed: str
    check: Callable[[Any], Any]
    needed: bool = False


def _text(value: Any) -> str:
    if type(value) is str and 0 < len(value.strip()) <= _LONGEST_TEXT and value.isprintable():
        return value.strip()
    raise ValueError


def _card(value: Any) -> str:
    return find_card(_text(value)).key  # its own fault lists the nearest


def _count(value: Any) -> int:
    if type(value) is int and 1 <= value <= MOST_GPUS:
        return value
    raise ValueError


def _amount(value: Any) -> Decimal:
    """A decimal string or a number, not negative; a float as it was written."""
    if type(value) is str and _AMOUNT.match(value.strip()):
        return Decimal(value.strip())
    if type(value) in (int, float) and 0 <= value < _MOST:
        return Decimal(repr(value))
    raise ValueError


def _between(low: str, high: float) -> Callable[[Any], Decimal]:
    """A number in limits: beyond them it is a slip, and no figure would make sense."""

    def check(value: Any) -> Decimal:
        amount = _amount(value)
        if Decimal(low) <= amount <= Decimal(high):
            return amount
        raise ValueError

    return check


def _flag(value: Any) -> bool:
    if type(value) is bool:
        return value
    raise ValueError


def _day(value: Any) -> date:
    if type(value) is date:
        return value
    if isinstance(value, datetime):
        return value.date()
    if type(value) is str:
        return date.fromisoformat(value)
    raise ValueError


def _one_of(words: tuple[str, ...]) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if type(value) is str and value in words:
            return value
        raise ValueError

    return check


def _number(low: str, high: float) -> FileKey:
    return FileKey(f"a number from {low} to {high:,.0f}", _between(low, high))


_AMOUNT_TEXT = 'an amount, like "12.50"'
_OF_A_MACHINE = _number("0.001", MOST_OF_A_MACHINE)
_SECONDS = _number("0.001", 10**8)
_HOURS = _number("0.001", 100_000)
MACHINE_KEYS: Mapping[str, FileKey] = {
    "name": FileKey("a text", _text, needed=True),
    "provider": FileKey('a text; "own" by default', _text),
    "region": FileKey("a text", _text),
    "gpu": FileKey("a key of the card catalogue, like H100-SXM", _card, needed=True),
    "gpus": FileKey("a whole number from 1", _count),
    "machines": FileKey("a whole number from 1", _count),
    "network_gbit_s": _OF_A_MACHINE,
    "rdma": FileKey("true, false", _flag),
    "vcpus": _OF_A_MACHINE,
    "host_memory_gib": _OF_A_MACHINE,
    "disk_gb": _number("0.001", 10**8),
    "currency": FileKey(", ".join(CURRENCIES), _one_of(CURRENCIES)),
    "price_per_hour": FileKey(_AMOUNT_TEXT, _between("0", float(MOST_PER_HOUR))),
    "interruptible_price_per_hour": FileKey(_AMOUNT_TEXT, _between("0", float(MOST_PER_HOUR))),
    "captured_on": FileKey("a date, like 2026-11-30", _day),
    "purchase": FileKey(_AMOUNT_TEXT, _amount),
    "resale": FileKey(_AMOUNT_TEXT, _amount),
    "years": _number("0.01", 100),
    "used_share": _number("0.001", 1),
    "power_kw": FileKey(_AMOUNT_TEXT.replace("12.50", "6.5"), _amount),
    "power_price_per_kwh": FileKey(_AMOUNT_TEXT.replace("12.50", "0.21"), _amount),
    "hosting_per_month": FileKey(_AMOUNT_TEXT, _amount),
}
"""keys of a table [[machine]]"""
PROVIDER_KEYS: Mapping[str, FileKey] = {
    "name": FileKey("a text", _text, needed=True),
    "billing_step_seconds": _SECONDS,
    "minimum_seconds": FileKey(_AMOUNT_TEXT, _amount),
    "stopped": FileKey(", ".join(_STOPPED), _one_of(_STOPPED)),
    "notice_seconds": FileKey(_AMOUNT_TEXT, _amount),
    "longest_hours": _HOURS,
    "interrupted_every_hours": _HOURS,
    "wait_hours": FileKey(_AMOUNT_TEXT, _amount),
    "disk_usd_gb_month": FileKey(_AMOUNT_TEXT, _amount),
    "stopped_disk_usd_gb_month": FileKey(_AMOUNT_TEXT, _amount),
    "egress_usd_gb": FileKey(_AMOUNT_TEXT, _amount),
}
"""keys of a table [[provider]]"""
RATE_KEYS: Mapping[str, FileKey] = {
    "EUR": FileKey("USD for one euro", _between("0.000001", 10**6)),
    "RUB": FileKey("USD for one rouble", _between("0.000001", 10**6)),
    "on": FileKey("a date, like 2026-11-30", _day),
}
"""keys of the table [rates]"""


def checked(table: Any, keys: Mapping[str, FileKey], where: str, faults: list[Fault]) -> dict[str, Any]:
    """The values of a table in their canonical form; what is wrong is added to ``faults``."""
    if not isinstance(table, dict):
        faults.append(Fault(where, describe(table), "a table"))
        return {}
    found: dict[str, Any] = {}
    for name, value in table.items():
        if name not in keys:
            faults.append(Fault(f"{where}.{name}"[:200], "no such key", ", ".join(keys), did_you_mean(name, list(keys))))
            continue
        try:
            found[name] = keys[name].check(value)
        except InputError as error:  # of the card catalogue, which lists the nearest
            faults.extend(Fault(f"{where}.{name}", fault.found, fault.allowed) for fault in error.faults)
        except (ValueError, Refused):
            faults.append(Fault(f"{where}.{name}", describe(value), keys[name].allowed))
    faults.extend(Fault(f"{where}.{name}", "missing", key.allowed) for name, key in keys.items() if key.needed and name not in table)
    return found
