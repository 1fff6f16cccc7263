"""Laws that every row of the bundled table keeps, and prices that anybody can look up."""

from __future__ import annotations

import csv
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from fullstep.offers.cards import offered_cards
from fullstep.offers.catalogue import bundled_offers, sources
from fullstep.offers.offer import PRICE_KIND_WORDS, Offer
from fullstep.offers.provider import DATA, providers
from fullstep.quantities import GB

WITHOUT_TERMS = {"akash", "dataoorts", "genesis-cloud", "gpuhub", "novita", "packet-ai", "qubrid", "spheron", "thunder-compute"}
"""sellers of which a price is known and nothing about how they bill: no row in providers.csv"""


def rows() -> list[dict[str, str]]:
    with (DATA / "offers.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def named(instance: str, region: str = "") -> Offer:
    (found,) = [offer for offer in bundled_offers() if offer.instance == instance and (not region or offer.region == region)]
    return found


def test_every_gpu_is_a_card_of_the_catalogue() -> None:
    assert {offer.name for offer in bundled_offers() if not offer.cards} == set()
    assert all(1 <= offer.gpus <= 16 for offer in bundled_offers())


def test_memory_is_that_of_the_card() -> None:
    """The name with its form means the card without its memory, or several of which memory tells one: never another one's memory."""
    for row, offer in zip(rows(), bundled_offers(), strict=True):
        by_name = offered_cards(row["gpu"], row["form"])
        assert set(offer.cards) <= set(by_name), offer.name
        sizes = {round(card.marketing_bytes / GB) for card in by_name}
        if len(sizes) == 1:  # the name alone tells the size: no row may be lost or kept by its memory
            assert offer.cards == by_name, offer.name


def test_prices_are_positive_and_have_a_kind() -> None:
    for offer in bundled_offers():
        found = [price for price in (offer.on_demand, offer.interruptible) if price is not None]
        assert found, offer.name
        assert all(0 < price.per_hour < 1000 and price.currency == "USD" and price.kind in PRICE_KIND_WORDS for price in found), offer.name


def test_what_may_be_taken_away_costs_no_more() -> None:
    dearer = [
        offer.name
        for offer in bundled_offers()
        if offer.on_demand is not None and offer.interruptible is not None and offer.interruptible.per_hour > offer.on_demand.per_hour
    ]
    assert dearer == []


def test_every_price_has_its_day() -> None:
    today = datetime.now(tz=UTC).date()
    assert all(date(2024, 1, 1) < offer.captured_on <= today for offer in bundled_offers())


def test_sources_are_named_with_their_licence() -> None:
    assert {offer.source for offer in bundled_offers()} == set(sources())
    assert all(source.licence and source.what and source.where for source in sources().values())


def test_terms_of_providers_are_known_or_known_to_be_missing() -> None:
    assert {offer.provider for offer in bundled_offers()} - set(providers()) <= WITHOUT_TERMS


def test_no_row_stands_there_twice() -> None:
    """One page may show several prices of one card, by host or by plan."""
    seen = [(offer.name, offer.cards, offer.gpus, offer.vcpus, offer.on_demand, offer.interruptible) for offer in bundled_offers()]
    assert [row for row in seen if seen.count(row) > 1] == []


def test_figures_of_the_host_are_positive_or_not_known() -> None:
    for offer in bundled_offers():
        figures = (offer.vcpus, offer.host_memory_gib, offer.disk_gb, offer.network_gbit_s)
        assert all(figure is None or figure > 0 for figure in figures), offer.name


@pytest.mark.parametrize(
    ("machine", "card", "gpus", "on_demand", "interruptible"),
    [
        ("us-east-1 p5.48xlarge", "H100-SXM", 8, "55.04", None),
        ("us-east-1 p4d.24xlarge", "A100-SXM4-40GB", 8, "21.9576", None),
        ("us-east-1 g6e.xlarge", "L40S", 1, "1.861", None),
        ("us-central1 a3-highgpu-8g", "H100-SXM", 8, "88.49", "50.61"),
        ("eastus Standard_ND96isr_H100_v5", "H100-SXM", 8, "98.32", None),
        ("eastus Standard_NC24ads_A100_v4", "A100-PCIE-80GB", 1, "3.673", None),
    ],
)
def test_well_known_rows(machine: str, card: str, gpus: int, on_demand: str, interruptible: str | None) -> None:
    """List prices of AWS (us-east-1, after June 2025), Google (us-central1) and Azure (eastus) as their pages show them."""
    region, instance = machine.split()
    offer = named(instance, region)
    assert [found.key for found in offer.cards] == [card] and offer.gpus == gpus
    assert offer.on_demand is not None and round(offer.on_demand.per_hour, 2) == round(Decimal(on_demand), 2)
    if interruptible is not None:
        assert offer.interruptible is not None and round(offer.interruptible.per_hour, 2) == Decimal(interruptible)


def test_network_of_a_known_machine() -> None:
    """p5.48xlarge: 32 x 100 Gbit/s with EFA (AWS's page of instance types)."""
    offer = named("p5.48xlarge")
    assert offer.network_gbit_s == 3200 and offer.rdma is True
    assert (offer.vcpus, offer.host_memory_gib) == (192, 2048)
