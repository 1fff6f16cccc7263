"""What ``machines.toml`` says, once it is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from fullstep.offers.currency import Rates
from fullstep.offers.offer import Offer
from fullstep.offers.provider import Provider


class OwnFile(NamedTuple):
    """One's own machines and agreed prices, providers' terms, and rates of currencies."""

    offers: tuple[Offer, ...]
    providers: Mapping[str, Provider]
    rates: Rates
