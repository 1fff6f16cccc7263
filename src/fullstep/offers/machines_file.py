"""``machines.toml``: machines that one has or could buy, prices that were agreed, providers' terms, and rates of currencies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from fullstep.errors import Fault, InputError
from fullstep.hardware import find_card
from fullstep.job.parsing import parse_toml
from fullstep.job.raw_bytes import bytes_of_file
from fullstep.offers.currency import Rate, Rates, default_rates
from fullstep.offers.file_values import MACHINE_KEYS, PROVIDER_KEYS, RATE_KEYS, checked
from fullstep.offers.offer import Offer, Price
from fullstep.offers.own_file import OwnFile
from fullstep.offers.owned import Ownership, owned_per_hour, running_per_hour
from fullstep.offers.provider import Provider, Tier, provider_of
from fullstep.quantities import Currency

_TABLES = ("machine", "provider", "rates")
_OWN = ("power_kw", "power_price_per_kwh", "hosting_per_month", "purchase", "resale", "years", "used_share")
"""keys that say what a machine of one's own costs"""
_ZERO = Decimal(0)


def read_machines(path: str | Path) -> OwnFile:
    """Reads the file.

    Raises:
        InputError: it cannot be read, or what it says is not allowed; all faults together
    """
    origin = str(path)[:200]
    try:
        text = bytes_of_file(path, origin).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(Fault(origin, "not UTF-8", "a TOML file in UTF-8")) from None
    tables, _ = parse_toml(text, origin)
    unknown = (name for name in tables if name not in _TABLES)
    faults = [Fault(f"{origin}: {name}"[:240], "no such table", "[[machine]], [[provider]], [rates]") for name in unknown]
    today = datetime.now(tz=UTC).date()
    offers = [
        _machine(values, f"{origin}: machine {number}", today, faults)
        for number, table in enumerate(_list_of(tables, "machine", origin, faults), 1)
        if (values := checked(table, MACHINE_KEYS, f"{origin}: machine {number}", faults))
    ]
    terms = [
        checked(table, PROVIDER_KEYS, f"{origin}: provider {number}", faults)
        for number, table in enumerate(_list_of(tables, "provider", origin, faults), 1)
    ]
    rates = _rates(checked(tables.get("rates", {}), RATE_KEYS, f"{origin}: rates", faults), origin, today)
    if faults:
        raise InputError(*faults)
    return OwnFile(tuple(offer for offer in offers if offer is not None), {term["name"]: _provider(term) for term in terms}, rates)


def _list_of(tables: Mapping[str, Any], name: str, origin: str, faults: list[Fault]) -> list[Any]:
    found = tables.get(name, [])
    if isinstance(found, list):
        return found
    faults.append(Fault(f"{origin}: {name}", "a single table", f"[[{name}]], with two brackets"))
    return []


def _machine(values: Mapping[str, Any], where: str, today: date, faults: list[Fault]) -> Offer | None:
    own = any(key in values for key in _OWN)
    rented = "price_per_hour" in values or "interruptible_price_per_hour" in values
    if own == rented:
        found = "both a price and what owning costs" if own else "no price"
        allowed = "price_per_hour or interruptible_price_per_hour; or power_kw, hosting_per_month, purchase, ... of a machine of one's own"
        faults.append(Fault(where, found, allowed))
    if "purchase" in values and "years" not in values:
        faults.append(Fault(f"{where}.years", "missing beside purchase", "the years over which it is used"))
    if values.get("resale", _ZERO) > values.get("purchase", _ZERO):
        faults.append(Fault(f"{where}.resale", f"{values['resale']}, more than the purchase", "at most the purchase"))
    if faults or "gpu" not in values or "name" not in values:
        return None
    card = find_card(values["gpu"])
    offer = Offer(
        provider=values.get("provider", "own"),
        region=values.get("region", "any"),
        instance=values["name"],
        gpu=values["gpu"],
        cards=(card,),
        gpus=values.get("gpus", 1),
        on_demand=_price(values, "price_per_hour"),
        interruptible=_price(values, "interruptible_price_per_hour"),
        captured_on=values.get("captured_on", today),
        source=where.partition(": ")[0],
        network_gbit_s=_float(values, "network_gbit_s"),
        rdma=values.get("rdma"),
        vcpus=_float(values, "vcpus"),
        host_memory_gib=_float(values, "host_memory_gib"),
        disk_gb=_float(values, "disk_gb"),
        machines=values.get("machines", 1 if own else None),
    )
    return _owned(offer, values) if own else offer


def _owned(offer: Offer, values: Mapping[str, Any]) -> Offer:
    own = Ownership(
        power_kw=values.get("power_kw", _ZERO),
        power_price_per_kwh=values.get("power_price_per_kwh", _ZERO),
        hosting_per_month=values.get("hosting_per_month", _ZERO),
        used_share=values.get("used_share", Decimal(1)),
        purchase=values.get("purchase"),
        resale=values.get("resale", _ZERO),
        years=values.get("years", Decimal(1)),
    )
    price = Price(owned_per_hour(own), _currency(values), "owned" if own.purchase is None else "bought")
    bought = None if own.purchase is None else own.purchase - own.resale
    return replace(offer, on_demand=price, purchase=bought, running_per_hour=running_per_hour(own))


def _price(values: Mapping[str, Any], key: str) -> Price | None:
    return Price(values[key], _currency(values), "negotiated") if key in values else None


def _currency(values: Mapping[str, Any]) -> Currency:
    found: Currency = values.get("currency", "USD")
    return found


def _float(values: Mapping[str, Any], key: str) -> float | None:
    return float(values[key]) if key in values else None


def _provider(term: Mapping[str, Any]) -> Provider:
    """What the table knows of a provider, with the terms of the file over it."""
    changes: dict[str, Any] = {key: value for key, value in term.items() if key not in ("name", "egress_usd_gb")}
    for key in ("billing_step_seconds", "minimum_seconds", "notice_seconds", "longest_hours", "interrupted_every_hours", "wait_hours"):
        if key in changes:
            changes[key] = float(changes[key])
    if "egress_usd_gb" in term:
        changes["egress"] = (Tier(None, term["egress_usd_gb"]),)
    return replace(provider_of(term["name"]), **changes)


def _rates(values: Mapping[str, Any], origin: str, today: date) -> Rates:
    rates = dict(default_rates())
    for currency in ("EUR", "RUB"):
        if currency in values:
            rates[currency] = Rate(values[currency], values.get("on", today), origin)
    return rates
