"""``machines.toml``: what it says, all of its faults together, and values that mean harm."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from fullstep.errors import InputError
from fullstep.offers.machines_file import OwnFile, read_machines
from fullstep.offers.market import market

MACHINE = '[[machine]]\nname = "box"\ngpu = "H100-SXM"\n'


def read(text: str) -> OwnFile:
    Path("m.toml").write_text(text, encoding="utf-8")
    return read_machines("m.toml")


def faults(text: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        read(text)
    return [str(fault) for fault in caught.value.faults]


def test_a_machine_that_is_there() -> None:
    """6 kW at 0.25 are 1.50 an hour of work, and 438.30 a month are 12 * 438.30 / 8766 = 0.60."""
    text = 'gpus = 8\npower_kw = 6\npower_price_per_kwh = "0.25"\nhosting_per_month = "438.30"\ncurrency = "EUR"\n'
    (offer,) = read(MACHINE + text).offers
    assert offer.on_demand is not None
    assert (offer.on_demand.per_hour, offer.on_demand.currency, offer.on_demand.kind) == (Decimal("2.10"), "EUR", "owned")
    assert offer.is_own and offer.purchase is None and offer.machines == 1 and offer.provider == "own"


def test_a_machine_that_one_would_buy() -> None:
    """(100,000 - 12,340) / (8766 * 5 * 0.4) = 5, and 10 kW at 0.20."""
    text = 'purchase = "100000"\nresale = "12340"\nyears = 5\nused_share = 0.4\npower_kw = 10\npower_price_per_kwh = 0.2\n'
    (offer,) = read(MACHINE + text).offers
    assert offer.on_demand is not None and (offer.on_demand.per_hour, offer.on_demand.kind) == (Decimal(7), "bought")
    assert (offer.purchase, offer.running_per_hour) == (Decimal(87_660), Decimal("2.0"))


def test_a_price_that_was_agreed_takes_the_place_of_the_offer() -> None:
    Path("machines.toml").write_text(
        '[[machine]]\nprovider = "aws"\nregion = "us-east-1"\nname = "p5.48xlarge"\ngpu = "H100-SXM"\ngpus = 8\nprice_per_hour = "40"\n'
        "captured_on = 2026-11-01\n"
    )
    same = [offer for offer in market().offers if (offer.provider, offer.instance) == ("aws", "p5.48xlarge")]
    assert len(same) == 1 and same[0].on_demand is not None
    assert (same[0].on_demand.per_hour, same[0].on_demand.kind, same[0].captured_on) == (40, "negotiated", date(2026, 11, 1))


def test_terms_outrank_the_table_key_by_key() -> None:
    text = '[[provider]]\nname = "aws"\negress_usd_gb = "0.02"\nwait_hours = 3\n'
    terms = read(text).providers["aws"]
    assert terms.egress is not None and [tier.usd_per_gb for tier in terms.egress] == [Decimal("0.02")]
    assert (terms.wait_hours, terms.notice_seconds, terms.stopped) == (3.0, 120.0, "compute_free")


def test_rates() -> None:
    rates = read('[rates]\nEUR = "1.10"\non = 2026-11-20\n').rates
    assert (rates["EUR"].usd_for_one, rates["EUR"].on) == (Decimal("1.10"), date(2026, 11, 20))
    assert rates["RUB"].source != "m.toml"


def test_an_empty_file_says_nothing() -> None:
    assert read("") == read("# nothing\n") and not read("").offers


def test_all_faults_come_together() -> None:
    found = faults(
        '[[machine]]\nnam = "x"\ngpu = "H100"\ngpus = 0\nprice_per_hour = "-1"\n'
        '[[provider]]\nname = "aws"\nstopped = "maybe"\n[rates]\nEUR = 0\n[prices]\n'
    )
    for words in (
        "prices: no such table", "nam: no such key", 'Did you mean "name"?', 'machine 1.gpu: "H100" is sold in', "gpus: 0",
        "price_per_hour:", "name: missing", "stopped:", "rates.EUR",
    ):  # fmt: skip
        assert any(words in fault for fault in found), (words, found)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("", "no price"),
        ('price_per_hour = "3"\npower_kw = 1\n', "both a price and what owning costs"),
        ('purchase = "10"\n', "years"),
        ('purchase = "10"\nyears = 2\nresale = "11"\n', "more than the purchase"),
        ("price_per_hour = nan\n", "price_per_hour"),
        ("price_per_hour = inf\n", "price_per_hour"),
        ("price_per_hour = true\n", "price_per_hour"),
        ('price_per_hour = "1e9"\n', "price_per_hour"),
        (f'price_per_hour = "{"9" * 400}"\n', "price_per_hour"),
        (f"gpus = {'9' * 400}\nprice_per_hour = 1\n", "gpus"),
        ("used_share = 1.5\npower_kw = 1\n", "used_share"),
        ('captured_on = "yesterday"\nprice_per_hour = 1\n', "captured_on"),
        ("price_per_hour = [1]\n", "a list of 1"),
        ('currency = "BTC"\nprice_per_hour = 1\n', "USD, EUR, RUB"),
        ('region = "\\u001b[2J"\nprice_per_hour = 1\n', "region"),
        (f'region = "{"a" * 500}"\nprice_per_hour = 1\n', "region"),
    ],
)
def test_values_that_are_not_allowed(lines: str, words: str) -> None:
    found = faults(MACHINE + lines)
    assert any(words in fault for fault in found), found
    assert all("\x1b" not in fault and len(fault) < 1000 for fault in found)


@pytest.mark.parametrize("text", ["[machine]\nname = 'x'\n", "machine = 3\n", "rates = 3\n", "[[rates]]\n", "provider = ['aws']\n", "x"])
def test_shapes_that_are_not_allowed(text: str) -> None:
    assert faults(text)


def test_files_that_cannot_be_read() -> None:
    Path("m.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="UTF-8"):
        read_machines("m.toml")
    with pytest.raises(InputError, match=r"none\.toml: no such file"):
        market("none.toml")


def test_the_file_that_the_environment_names(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("mine.toml").write_text(MACHINE + "price_per_hour = 3\n")
    monkeypatch.setenv("FULLSTEP_MACHINES", "mine.toml")
    assert market().offers[0].name == "own box"


def test_the_example_of_the_docs() -> None:
    """2.1 kW at 0.28 and 12 * 250 / (8766 * 0.6); (250,000 - 60,000) / (8766 * 4 * 0.5), 10 kW at 0.20 and 12 * 900 / (8766 * 0.5)."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "offers.md").read_text(encoding="utf-8")
    found = read(page.split("```toml\n")[1].split("```")[0])
    costs = [round(offer.on_demand.per_hour, 3) for offer in found.offers if offer.on_demand]
    assert costs == [Decimal("1.158"), Decimal("15.301"), Decimal("39.90")]
    assert set(found.providers) == {"selectel"} and found.rates["EUR"].usd_for_one == Decimal("1.16")
    table = market(saved=False)
    sellers = len({offer.provider for offer in table.offers})
    assert f"{len(table.offers):,} machines for rent from {sellers} sellers" in page
    assert f"Prices of {len(table.without_price())} providers in the table" in page
