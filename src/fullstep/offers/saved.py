"""Offers that were fetched, kept in the user's cache folder with their date: one file per provider."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

from fullstep.hardware import cards_named
from fullstep.offers.offer import MOST_GPUS, MOST_OF_A_MACHINE, MOST_PER_HOUR, PRICE_KIND_WORDS, Offer, Price
from fullstep.quantities import CURRENCIES
from fullstep.user_cache import cache_folder

FORM = 1
"""of the file; another one is not read"""
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,40}\Z")
_TEXTS = ("provider", "region", "instance", "gpu", "source", "tier", "seen_at")
_FIGURES = ("vcpus", "host_memory_gib", "disk_gb", "network_gbit_s")
_LARGEST_BYTES = 16 * 1024 * 1024


def saved_folder() -> Path | None:
    """Of fetched offers; None where nothing is kept."""
    return cache_folder("offers")


def save_offers(provider: str, offers: Iterable[Offer], folder: Path) -> Path:
    """Replaces what was saved of a provider, in one move.

    Raises:
        OSError: the folder cannot be written
        ValueError: the provider's name is no file name
    """
    if not _NAME.match(provider):
        raise ValueError(provider)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{provider}.json"
    part = folder / f"{provider}.{os.getpid()}.part"
    try:
        part.write_text(json.dumps({"form": FORM, "offers": [_written(offer) for offer in offers]}), encoding="utf-8")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return path


def saved_offers(folder: Path | None = None) -> Sequence[Offer]:
    """All offers that were saved and can still be read; what a later version no longer understands is as if it were not there."""
    found: list[Offer] = []
    for path in saved_files(folder):
        with suppress(OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError):
            found += _read(path)
    return found


def saved_files(folder: Path | None = None) -> list[Path]:
    """The files of the folder, one per provider; none where it cannot be read."""
    folder = folder or saved_folder()
    with suppress(OSError):
        return sorted(folder.glob("*.json")) if folder is not None and folder.is_dir() else []
    return []


def _read(path: Path) -> list[Offer]:
    if not stat.S_ISREG(path.stat().st_mode):  # a pipe would wait for ever
        return []
    with path.open("rb") as file:
        raw = file.read(_LARGEST_BYTES + 1)
    if len(raw) > _LARGEST_BYTES:
        return []
    document = json.loads(raw.decode("utf-8"))
    if document["form"] != FORM:
        return []
    return [offer for row in document["offers"] if (offer := _offer(row)).cards]


def _written(offer: Offer) -> dict[str, Any]:
    return {
        "provider": offer.provider, "region": offer.region, "instance": offer.instance, "gpu": offer.gpu,
        "cards": [card.key for card in offer.cards], "gpus": offer.gpus,
        "on_demand": _price_written(offer.on_demand), "interruptible": _price_written(offer.interruptible),
        "captured_on": offer.captured_on.isoformat(), "source": offer.source, "vcpus": offer.vcpus,
        "host_memory_gib": offer.host_memory_gib, "disk_gb": offer.disk_gb, "network_gbit_s": offer.network_gbit_s, "rdma": offer.rdma,
        "tier": offer.tier, "seen_at": offer.seen_at,
    }  # fmt: skip


def _price_written(price: Price | None) -> list[str] | None:
    return None if price is None else [str(price.per_hour), price.currency, price.kind]


def _offer(row: dict[str, Any]) -> Offer:
    cards = tuple(card for key in row["cards"] for card in cards_named(key) if card.key == key)
    counted = type(row["gpus"]) is int and 1 <= row["gpus"] <= MOST_GPUS
    if not counted or row["rdma"] not in (None, True, False) or type(row["rdma"]) is int:
        raise ValueError(row["gpus"], row["rdma"])
    plain: dict[str, Any] = {name: _words(row[name]) for name in _TEXTS} | {name: _figure(row[name]) for name in _FIGURES}
    return Offer(
        **plain,
        gpus=row["gpus"],
        rdma=row["rdma"],
        cards=cards,
        on_demand=_price(row["on_demand"]),
        interruptible=_price(row["interruptible"]),
        captured_on=date.fromisoformat(row["captured_on"]),
    )


def _words(value: Any) -> str:
    if not isinstance(value, str) or not value.isprintable():
        raise ValueError(value)
    return value


def _figure(value: Any) -> float | None:
    if value is not None and (type(value) not in (int, float) or not 0 < value <= MOST_OF_A_MACHINE):
        raise ValueError(value)
    return None if value is None else float(value)


def _price(written: list[str] | None) -> Price | None:
    if written is None:
        return None
    amount, currency, kind = Decimal(str(written[0])), written[1], written[2]
    sound = type(written[0]) is str and amount.is_finite() and 0 <= amount <= MOST_PER_HOUR
    if not (sound and currency in CURRENCIES and kind in PRICE_KIND_WORDS):
        raise ValueError(written)
    return Price(amount, currency, kind)
