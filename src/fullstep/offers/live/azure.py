"""Azure: list prices of the sizes that the bundled table knows, in all regions. Untried live: written from the documentation alone.

The price list names neither GPUs nor hosts; those come from the table. Form:
https://learn.microsoft.com/en-us/rest/api/cost-management/retail-prices/azure-retail-prices
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any, Literal
from urllib.parse import urlencode, urlsplit

from fullstep.offers.live.answers import FetchError, Parsed, cheapest, parse_json, price, rows_of, words
from fullstep.offers.live.known_machines import known_machine
from fullstep.offers.live.transport import Deadline, ask
from fullstep.offers.offer import Offer, Price

ADDRESS = "https://prices.azure.com/api/retail/prices"
SOURCE = "prices.azure.com"
_FILTER = "serviceName eq 'Virtual Machines' and priceType eq 'Consumption' and contains(armSkuName, 'Standard_N')"
_MOST_PAGES = 60
"""of a thousand rows; the machines with GPUs of all regions are fewer than ten"""
_OTHER_PRODUCTS = ("windows", "cloud services", "cloudservices", "dedicated")
_OTHER_METERS = ("low priority", "expired")
Mode = Literal["on_demand", "interruptible"]


def fetch_azure(deadline: Deadline, today: date, address: str = ADDRESS) -> Parsed:
    """Asks page by page.

    Raises:
        FetchError: a page did not come, or none that can be read
    """
    pages: list[bytes] = []
    page: str | None = f"{address}?{urlencode({'$filter': _FILTER})}"
    while page is not None:
        if len(pages) == _MOST_PAGES:
            raise FetchError(f"more than {_MOST_PAGES} pages")
        pages.append(ask(page, deadline))
        page = next_page(pages[-1], address)
    return parse_azure(pages, today)


def next_page(data: bytes, address: str = ADDRESS) -> str | None:
    """Where the next page is; None: this is the last.

    Raises:
        FetchError: it is said to be with somebody else
    """
    document = parse_json(data)
    link = document.get("NextPageLink") if isinstance(document, dict) else None
    if not link:
        return None
    # the service writes its own port out
    if not isinstance(link, str) or urlsplit(link)[:2] not in {urlsplit(address)[:2], (urlsplit(address)[0], f"{SOURCE}:443")}:
        raise FetchError("the next page is with somebody else")
    return link


def parse_azure(pages: Sequence[bytes], today: date) -> Parsed:
    """Offers of all pages: on demand and spot rows of a size in a region become one offer.

    Raises:
        FetchError: a page is no list of prices
    """
    dropped: Counter[str] = Counter()
    prices: dict[tuple[str, str], dict[Mode, Price]] = {}
    for row in (row for page in pages for row in rows_of(parse_json(page), "Items")):
        if not _is_linux_by_the_hour(row):
            continue
        size, region, cost = words(row.get("armSkuName")), words(row.get("armRegionName")), price(row.get("retailPrice"), "list")
        if not size or not region or cost is None:
            dropped["cannot be read"] += 1
            continue
        if known_machine("azure", size) is None:
            dropped["size not in the table"] += 1
            continue
        mode: Mode = "interruptible" if "spot" in words(row.get("meterName"), 300).lower() else "on_demand"
        prices.setdefault((size, region), {}).setdefault(mode, cost)
    offers = [_offer(size, region, found, today) for (size, region), found in prices.items()]
    return cheapest([offer for offer in offers if offer is not None], dropped)


def _is_linux_by_the_hour(row: Mapping[str, Any]) -> bool:
    product, meter = words(row.get("productName"), 300).lower(), words(row.get("meterName"), 300).lower()
    return (
        row.get("type", "Consumption") == "Consumption"
        and row.get("currencyCode", "USD") == "USD"
        and row.get("unitOfMeasure") == "1 Hour"
        and row.get("isPrimaryMeterRegion", True) is True
        and not row.get("reservationTerm")
        and not any(word in product for word in _OTHER_PRODUCTS)
        and not any(word in meter for word in _OTHER_METERS)
    )


def _offer(size: str, region: str, found: Mapping[Mode, Price], today: date) -> Offer | None:
    known = known_machine("azure", size)
    if known is None:
        return None
    on_demand, spot = found.get("on_demand"), found.get("interruptible")
    if on_demand is not None and spot is not None and spot.per_hour > on_demand.per_hour:
        spot = None
    return replace(
        known, region=region, instance=size, on_demand=on_demand, interruptible=spot, captured_on=today, source=SOURCE, seen_at=""
    )
