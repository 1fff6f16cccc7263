"""What stands beside what, and what is old."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path

from fullstep.offers.catalogue import bundled_offers
from fullstep.offers.market import OLD_AFTER_DAYS, changed, is_old, market
from fullstep.offers.offer import Offer, Price
from fullstep.offers.saved import save_offers, saved_folder

P5 = next(offer for offer in bundled_offers() if offer.instance == "p5.48xlarge")


def save(*offers: Offer) -> None:
    folder = saved_folder()
    assert folder is not None
    save_offers(offers[0].provider, offers, folder)


def test_without_anything_else_it_is_the_bundled_table() -> None:
    assert list(market().offers) == list(bundled_offers())


def test_a_provider_that_was_fetched_counts_with_what_was_fetched_alone() -> None:
    fresh = replace(P5, on_demand=Price(Decimal(50), "USD", "live"), captured_on=date(2026, 11, 30))
    save(fresh)
    assert [offer for offer in market().offers if offer.provider == "aws"] == [fresh]
    assert {offer.provider for offer in market().offers} == {offer.provider for offer in bundled_offers()}
    assert list(market(saved=False).offers) == list(bundled_offers())


def test_own_machines_come_first_and_take_the_place_of_what_was_fetched() -> None:
    save(P5)
    Path("machines.toml").write_text(
        '[[machine]]\nprovider = "aws"\nregion = "us-east-1"\nname = "p5.48xlarge"\ngpu = "H100-SXM"\ngpus = 8\nprice_per_hour = "40"\n'
    )
    assert [offer.on_demand.kind for offer in market().offers if offer.provider == "aws" and offer.on_demand] == ["negotiated"]
    assert market().offers[0].provider == "aws"


def test_an_agreed_price_keeps_what_is_known_of_the_machine() -> None:
    Path("machines.toml").write_text(
        '[[machine]]\nprovider = "aws"\nregion = "us-east-1"\nname = "p5.48xlarge"\ngpu = "H100-SXM"\ngpus = 8\nprice_per_hour = "40"\n'
        "vcpus = 100\n"
    )
    mine = market().offers[0]
    assert (mine.vcpus, mine.host_memory_gib, mine.network_gbit_s, mine.rdma) == (100, P5.host_memory_gib, 3200, True)
    assert mine.interruptible is None and mine.on_demand is not None and mine.on_demand.per_hour == 40


def test_another_number_of_cards_is_another_machine() -> None:
    Path("machines.toml").write_text(
        '[[machine]]\nprovider = "aws"\nregion = "us-east-1"\nname = "p5.48xlarge"\ngpu = "H100-SXM"\ngpus = 4\nprice_per_hour = "40"\n'
    )
    assert sum(offer.instance == "p5.48xlarge" for offer in market().offers) == 2


def test_a_changed_file_is_read_again() -> None:
    before = changed()
    Path("machines.toml").write_text('[rates]\nEUR = "1.2"\n')
    assert changed() != before


def test_providers_without_a_price() -> None:
    names = {provider.name for provider in market().without_price()}
    assert names >= {"selectel", "yandex-cloud", "cloud.ru", "immers.cloud", "timeweb", "intelion"} and "aws" not in names


def test_terms_of_the_file_outrank_the_table() -> None:
    Path("machines.toml").write_text('[[provider]]\nname = "selectel"\ninterrupted_every_hours = 9\n')
    found = market().provider("selectel")
    assert (found.interrupted_every_hours, found.longest_hours) == (9.0, 24.0)


def test_old_is_more_than_thirty_days() -> None:
    border = P5.captured_on + timedelta(days=OLD_AFTER_DAYS)
    assert not is_old(P5, border) and is_old(P5, border + timedelta(days=1))
