"""All offers that a search may choose from: those that come with fullstep, newer ones that were fetched, and one's own."""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import NamedTuple

from fullstep.errors import Fault, InputError
from fullstep.offers.catalogue import bundled_offers, bundled_offers_of
from fullstep.offers.currency import Rates, default_rates
from fullstep.offers.offer import Offer
from fullstep.offers.own_file import OwnFile
from fullstep.offers.provider import Provider, provider_of, providers
from fullstep.offers.saved import saved_files, saved_offers

OLD_AFTER_DAYS = 30
"""prices of GPUs moved by 10 to 40 % in 30 days of 2026: older ones are marked"""
DEFAULT_FILE = "machines.toml"
_MACHINE = ("vcpus", "host_memory_gib", "disk_gb", "network_gbit_s", "rdma")
"""what an offer knows of its machine"""


class Market(NamedTuple):
    """Offers with the terms of their providers and the rates of currencies."""

    offers: Sequence[Offer]
    terms: Mapping[str, Provider]
    """of one's own file; they outrank the table"""
    rates: Rates

    def provider(self, name: str) -> Provider:
        """A provider's terms."""
        return self.terms.get(name) or provider_of(name)

    def without_price(self) -> list[Provider]:
        """Providers that rent GPUs and have no price here."""
        priced = {offer.provider for offer in self.offers}
        return [self.provider(name) for name in providers() if name not in priced]


def market(machines: str | Path | None = None, *, saved: bool = True, only: tuple[str, int] | None = None) -> Market:
    """The offers of today.

    A provider whose prices were fetched counts with these alone. Machines of one's own file stand beside them; one that has the provider,
    region, name and cards of an offer takes its place.

    Args:
        machines: one's own file; None: that which FULLSTEP_MACHINES names, else ``machines.toml`` here, where there is one
        saved: with what ``fullstep offers refresh`` fetched
        only: a card and how many of it a machine has: of the offers that come along no others are read, for speed

    Raises:
        InputError: the file is at fault
    """
    own = _own(machines)
    fetched = saved_offers() if saved else ()
    renewed = {offer.provider for offer in fetched}
    bundled = bundled_offers() if only is None else bundled_offers_of(*only)
    others = [*(offer for offer in bundled if offer.provider not in renewed), *fetched]
    mine = [_completed(offer, others) for offer in own.offers]
    places = {_place(offer) for offer in mine}
    left = (offer for offer in others if _place(offer) not in places or not any(_is_same(offer, each) for each in mine))
    return Market((*mine, *left), own.providers, own.rates)


def changed() -> Hashable:
    """Something else as soon as one's own file or what was fetched is another one."""
    own = Path(os.environ.get("FULLSTEP_MACHINES", "").strip() or DEFAULT_FILE)
    found: list[tuple[str, int]] = []
    for path in (own, *saved_files()):
        with suppress(OSError):
            found.append((str(path.absolute()), path.stat().st_mtime_ns))
    return tuple(found)


def is_old(offer: Offer, today: date) -> bool:
    """Its price was seen more than ``OLD_AFTER_DAYS`` ago; what a machine of one's own costs does not grow old."""
    return not offer.is_own and today - offer.captured_on > timedelta(days=OLD_AFTER_DAYS)


def _place(offer: Offer) -> tuple[str, str, str]:
    return offer.provider, offer.region, offer.instance


def _is_same(offer: Offer, own: Offer) -> bool:
    """The same machine in the same place: as many cards that it may be."""
    return _place(offer) == _place(own) and offer.gpus == own.gpus and any(card in offer.cards for card in own.cards)


def _completed(own: Offer, others: Sequence[Offer]) -> Offer:
    """An agreed price for a machine that is known: what the file leaves out of it is as the seller has it."""
    known = next((offer for offer in others if _is_same(offer, own)), None)
    if known is None:
        return own
    left_out = {name: getattr(known, name) for name in _MACHINE if getattr(own, name) is None}
    return replace(own, **left_out, tier=own.tier or known.tier, seen_at=known.seen_at)


def _own(path: str | Path | None) -> OwnFile:
    stated = path or os.environ.get("FULLSTEP_MACHINES", "").strip()
    if stated:
        with suppress(OSError):  # what cannot even be looked for is told by whoever reads it
            if not Path(stated).exists():
                raise InputError(Fault(str(stated)[:200], "no such file", "a file of your machines, see docs/offers.md"))
        return _read(stated)
    with suppress(OSError):
        if Path(DEFAULT_FILE).is_file():
            return _read(DEFAULT_FILE)
    return OwnFile((), {}, default_rates())


def _read(path: str | Path) -> OwnFile:
    from fullstep.offers.machines_file import read_machines  # noqa: PLC0415 (only who has such a file pays for it)

    return read_machines(path)
