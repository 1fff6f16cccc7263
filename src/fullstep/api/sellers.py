"""Who rents which machine at what price, seen when; and fresh prices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from os import PathLike, fspath
from typing import TYPE_CHECKING

from fullstep.offers.comparing import Comparison
from fullstep.offers.comparing import compare_offers as compare_in
from fullstep.offers.listing import Listing, OfferFilters, list_offers
from fullstep.offers.market import market
from fullstep.quantities import Currency

if TYPE_CHECKING:
    from fullstep.offers.live.refresh import Outcome, Refresh

_TIMEOUT_SECONDS = 20.0


def offers(filters: OfferFilters | None = None, *, machines: str | PathLike[str] | None = None, saved: bool = True) -> Listing:
    """Offers that pass the filters, cheapest first unless they say otherwise.

    Args:
        filters: what is asked for; None: anything
        machines: one's own machines.toml; None: that which FULLSTEP_MACHINES names, else the one here, where there is one
        saved: with what ``refresh_offers`` fetched

    Raises:
        InputError: a filter or the file is at fault
    """
    today = datetime.now(tz=UTC).date()
    return list_offers(market(None if machines is None else fspath(machines), saved=saved), filters or OfferFilters(), today)


def compare_offers(
    names: Sequence[str], *, currency: Currency = "USD", gpu: str = "", machines: str | PathLike[str] | None = None, saved: bool = True
) -> Comparison:
    """Providers or offers side by side.

    Args:
        names: providers ("aws"), or words of an offer's name ("aws us-east-1 p5.48xlarge")
        currency: of all prices
        gpu: only offers with this card count; "": any
        machines, saved: as for ``offers``

    Raises:
        InputError: a name or the file is at fault
    """
    found = market(None if machines is None else fspath(machines), saved=saved)
    return compare_in(found, names, currency, datetime.now(tz=UTC).date(), gpu)


def refresh_offers(
    providers: Sequence[str] = (),
    *,
    timeout_seconds: float = _TIMEOUT_SECONDS,
    progress: Callable[[Outcome], None] | None = None,
    begin: Callable[[int], None] | None = None,
) -> Refresh:
    """Fetches prices, each provider for itself, and saves what came in the user's cache folder with the day.

    Untried against the live services: written from their documentation.

    Args:
        providers: by name; none: all that can be asked without more than is there
        timeout_seconds: for each way to a provider
        progress: is told each outcome when it is there
        begin: is told how many providers are asked, before any is

    Raises:
        InputError: a name is at fault, or there is no folder to save in
    """
    from fullstep.offers.live.refresh import refresh  # noqa: PLC0415 (a list needs no network)

    return refresh(providers, timeout_seconds, progress or (lambda _: None), begin or (lambda _: None))
