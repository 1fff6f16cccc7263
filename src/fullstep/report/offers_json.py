"""Offers, comparisons and refreshes as JSON: money per hour of a machine as decimal text, null where it is not known."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any

from fullstep import __version__
from fullstep.hardware import default_node
from fullstep.offers.catalogue import sources
from fullstep.offers.comparing import Compared, Comparison
from fullstep.offers.currency import Rates
from fullstep.offers.listing import ListedOffer, Listing
from fullstep.offers.market import is_old
from fullstep.offers.offer import Offer, Price
from fullstep.offers.provider import Provider
from fullstep.report.json import SCHEMA

if TYPE_CHECKING:  # a list needs nothing that fetches
    from fullstep.offers.live.refresh import Refresh


def offers_as_dict(found: Listing) -> dict[str, Any]:
    """The list as one object."""
    filters = found.filters
    return {
        "schema": SCHEMA,
        "fullstep": __version__,
        "today": found.today.isoformat(),
        "currency": filters.currency,
        "interruptible": filters.interruptible,
        "offers": [_row(row) for row in found.rows],
        "found": found.found,
        "emptied_by": found.emptied_by or None,
        "other_price_only": found.other_price_only,
        "region_not_said": found.region_not_said,
        "price_unknown": [{"provider": provider.name, "country": provider.country or None} for provider in found.without_price],
        "providers": [provider_as_dict(provider) for provider in found.asked_providers],
        "rates": _rates(found.market.rates),
        "sources": {code: {"where": sources()[code].where, "licence": sources()[code].licence} for code in found.sources},
    }


def comparison_as_dict(found: Comparison) -> dict[str, Any]:
    """The comparison as one object."""
    return {
        "schema": SCHEMA,
        "fullstep": __version__,
        "today": found.today.isoformat(),
        "currency": found.currency,
        "compared": [_column(column, found.today) for column in found.columns],
        "rates": _rates(found.market.rates),
    }


def refresh_as_dict(found: Refresh) -> dict[str, Any]:
    """What became of each provider as one object."""
    return {
        "schema": SCHEMA,
        "fullstep": __version__,
        "folder": str(found.folder),
        "providers": [{**outcome._asdict(), "dropped": dict(outcome.dropped)} for outcome in found.outcomes],
    }


def offer_as_dict(offer: Offer, today: date) -> dict[str, Any]:
    """One offer with its prices as they were seen."""
    return {
        "name": offer.name,
        "provider": offer.provider,
        "region": offer.region,
        "instance": offer.instance,
        "tier": offer.tier or None,
        "gpus": offer.gpus,
        "gpu": offer.gpu,
        "cards": [_card(card, offer.gpus) for card in offer.cards],
        "on_demand": _price(offer.on_demand),
        "interruptible": _price(offer.interruptible),
        "captured_on": offer.captured_on.isoformat(),
        "old": is_old(offer, today),
        "source": offer.source,
        "seen_at": offer.seen_at or None,
        "vcpus": offer.vcpus,
        "host_memory_gib": offer.host_memory_gib,
        "disk_gb": offer.disk_gb,
        "network_gbit_s": offer.network_gbit_s,
        "rdma": offer.rdma,
        "machines": offer.machines,
    }


def provider_as_dict(provider: Provider) -> dict[str, Any]:
    """A provider's terms: figures that a bill reads, and notes for people."""
    tiers = provider.egress
    figures = ("billing_step_seconds", "minimum_seconds", "stopped", "notice_seconds", "longest_hours", "interrupted_every_hours")
    return {
        "name": provider.name,
        "country": provider.country or None,
        **{name: getattr(provider, name) for name in (*figures, "wait_hours")},
        "disk_usd_gb_month": _text(provider.disk_usd_gb_month),
        "stopped_disk_usd_gb_month": _text(provider.stopped_disk_usd_gb_month),
        "egress": None if tiers is None else [{"up_to_gb": _text(gb), "usd_per_gb": str(cost)} for gb, cost in tiers],
        "notes": {name: text for name, text in provider.texts.items() if text},
    }


def _row(row: ListedOffer) -> dict[str, Any]:
    price = {"per_hour": str(row.price.per_hour), "per_gpu_hour": str(row.per_gpu), "currency": row.price.currency, "kind": row.price.kind}
    return {"price": price, **offer_as_dict(row.offer, row.offer.captured_on), "old": row.is_old}


def _column(column: Compared, today: date) -> dict[str, Any]:
    return {
        "asked": column.asked,
        "provider": provider_as_dict(column.provider),
        "offer": None if column.offer is None else offer_as_dict(column.offer, today),
        "alike": column.alike,
        "on_demand": _price(None if column.on_demand is None else column.on_demand.price),
        "interruptible": _price(None if column.interruptible is None else column.interruptible.price),
        "by_card": [_row(row) for row in column.by_card],
    }


def _card(card: Any, gpus: int) -> dict[str, Any]:
    node = default_node(card, gpus)
    rate = node.link_bytes_per_second_bidirectional
    return {
        "key": card.key,
        "memory_bytes": card.total_bytes,
        "memory_evidence": "published" if card.reported_bytes is not None else "assumed",
        "link": node.link if gpus > 1 else None,
        "link_bytes_per_second_bidirectional": rate if gpus > 1 else None,
    }


def _price(price: Price | None) -> dict[str, Any] | None:
    return None if price is None else {"per_hour": str(price.per_hour), "currency": price.currency, "kind": price.kind}


def _rates(rates: Rates) -> dict[str, Any]:
    return {
        currency: {"usd_for_one": str(rate.usd_for_one), "on": rate.on.isoformat() if rate.on else None, "source": rate.source}
        for currency, rate in rates.items()
    }


def _text(value: object) -> str | None:
    return None if value is None else str(value)
