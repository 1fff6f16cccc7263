"""Parsers on hand-written answers in the documented form, and on answers that mean harm: rows are left out and counted, nothing breaks."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from fullstep.offers.live.answers import FetchError, Parsed, parse_json, price
from fullstep.offers.live.azure import next_page, parse_azure
from fullstep.offers.live.gpuhunt_rows import parse_gpuhunt
from fullstep.offers.live.runpod import parse_runpod
from fullstep.offers.live.vast import parse_vast
from fullstep.offers.offer import Offer
from fullstep.offers.provider import providers

TODAY = date(2026, 11, 30)


def usd(offer: Offer, *, interruptible: bool = False) -> Decimal | None:
    found = offer.price(interruptible)
    return None if found is None else found.per_hour


def gpuhunt_answer(path: Path) -> dict[str, Any]:
    """As the worker writes what gpuhunt reads from such a file."""
    kinds: dict[str, Callable[[str], Any]] = {
        "price": float, "cpu": int, "memory": float, "gpu_count": int, "gpu_memory": float, "spot": lambda text: text == "True",
    }  # fmt: skip
    with path.open(newline="") as file:
        items = [{name: kinds.get(name, str)(text) if text else None for name, text in row.items()} for row in csv.DictReader(file)]
    return {"items": [item for item in items if item["gpu_count"]], "version": "0.1.34"}


def test_vast(fixtures: Path) -> None:
    """Of two hosts in Sweden the cheaper; a bid above the price is no interruptible price; half of the cores have half of the memory."""
    found = parse_vast((fixtures / "synthetic_vast.json").read_bytes(), TODAY)
    offers = {offer.instance: offer for offer in found.offers}
    assert set(offers) == {"H100 SXM x8", "RTX 4090 x1", "RTX PRO 6000 S x2"} and found.dropped == {"card not in the catalogue": 1}
    h100 = offers["H100 SXM x8"]
    assert (usd(h100), usd(h100, interruptible=True), h100.region) == (Decimal("19.25"), Decimal("11.0"), "se")
    assert [card.key for card in h100.cards] == ["H100-SXM"] and (h100.vcpus, h100.host_memory_gib, h100.disk_gb) == (64, 512, 2000)
    assert offers["RTX 4090 x1"].region == "any" and offers["RTX 4090 x1"].host_memory_gib == 32
    assert [card.key for card in offers["RTX PRO 6000 S x2"].cards] == ["RTXPRO6000-SE"]
    assert usd(offers["RTX PRO 6000 S x2"], interruptible=True) is None
    assert {offer.captured_on for offer in found.offers} == {TODAY} and {offer.source for offer in found.offers} == {"console.vast.ai"}
    assert {offer.on_demand.kind for offer in found.offers if offer.on_demand} == {"live"}


def test_runpod(fixtures: Path) -> None:
    """The price of one GPU times their number, where so many are in stock."""
    found = parse_runpod((fixtures / "synthetic_runpod.json").read_bytes(), TODAY)
    offers = {offer.instance: offer for offer in found.offers}
    assert {name: usd(offer) for name, offer in offers.items()} == {
        "H100 SXM x1 (secure)": Decimal("2.99"), "H100 SXM x2 (secure)": Decimal("5.98"), "H100 SXM x8 (secure)": Decimal("23.92"),
        "MI300X x1 (secure)": Decimal("2.49"), "H200 x1 (community)": Decimal("3.59"),
    }  # fmt: skip
    assert [card.key for card in offers["H100 SXM x8 (secure)"].cards] == ["H100-SXM"]
    assert [card.key for card in offers["H200 x1 (community)"].cards] == ["H200-SXM"] and offers["H200 x1 (community)"].tier == "community"
    assert found.dropped == {"cannot be read": 1, "card not in the catalogue": 1}
    assert all(offer.interruptible is None for offer in found.offers)


def test_azure(fixtures: Path) -> None:
    """Linux by the hour alone; spot and on demand of one size in one region are one offer with the host of the bundled table."""
    pages = [(fixtures / f"synthetic_azure_{page}.json").read_bytes() for page in (1, 2)]
    assert next_page(pages[0]) == "https://prices.azure.com:443/api/retail/prices?$skip=1000" and next_page(pages[1]) is None
    found = parse_azure(pages, TODAY)
    offers = {(offer.instance, offer.region): offer for offer in found.offers}
    h100 = offers["Standard_ND96isr_H100_v5", "eastus"]
    assert (usd(h100), usd(h100, interruptible=True)) == (Decimal("98.32"), Decimal("18.17"))
    assert h100.on_demand is not None and h100.on_demand.kind == "list"
    assert (h100.gpus, h100.network_gbit_s, h100.rdma) == (8, 3200, True) and [card.key for card in h100.cards] == ["H100-SXM"]
    assert usd(offers["Standard_NC24ads_A100_v4", "westus3"], interruptible=True) is None
    assert found.dropped == {"size not in the table": 1, "cannot be read": 1} and len(offers) == 2


@pytest.mark.parametrize(
    "link", ["https://example.com/api", "http://prices.azure.com/", "https://prices.azure.com.example.com/", "file:///x", 5]
)
def test_azure_sends_nobody_elsewhere(link: object) -> None:
    with pytest.raises(FetchError, match="somebody else"):
        next_page(json.dumps({"Items": [], "NextPageLink": link}).encode())


def test_gpuhunt(fixtures: Path) -> None:
    """gpuhunt names no form: the bundled table knows that p5.48xlarge has SXM cards and EFA. The first Gaudi is in no catalogue."""
    found = parse_gpuhunt(json.dumps(gpuhunt_answer(fixtures / "synthetic_gpuhunt_aws.csv")).encode(), "aws", TODAY)
    (p5,) = found.offers
    assert (usd(p5), usd(p5, interruptible=True)) == (Decimal("55.04"), Decimal("21.5"))
    assert [card.key for card in p5.cards] == ["H100-SXM"] and (p5.network_gbit_s, p5.rdma) == (3200, True)
    assert (p5.source, p5.captured_on, p5.vcpus) == ("gpuhunt 0.1.34", TODAY, 192)
    assert found.dropped == {"card not in the catalogue": 1}


def item(**changes: Any) -> dict[str, Any]:
    plain = {
        "instance_name": "x8", "location": "here", "price": 10.0, "cpu": 8, "memory": 64.0, "gpu_count": 8, "gpu_name": "H100",
        "gpu_memory": 80.0, "spot": False, "disk_size": None, "gpu_vendor": "nvidia", "flags": [],
    }  # fmt: skip
    return plain | changes


def gpuhunt(*items: dict[str, Any]) -> Parsed:
    return parse_gpuhunt(json.dumps({"items": items}).encode(), "verda", TODAY)


def test_a_form_that_is_not_said_stays_open() -> None:
    (offer,) = gpuhunt(item()).offers
    assert [card.key for card in offer.cards] == ["H100-PCIE", "H100-SXM"]


def test_the_name_of_the_machine_may_say_the_form() -> None:
    (offer,) = gpuhunt(item(instance_name="NVIDIA H100 80GB HBM3", gpu_count=1)).offers
    assert [card.key for card in offer.cards] == ["H100-SXM"]


def test_of_two_zones_the_cheaper_and_spot_never_above() -> None:
    rows = [item(price=price, spot=spot) for price, spot in ((10.0, False), (9.0, False), (8.0, True), (7.0, True))]
    (offer,) = gpuhunt(*rows).offers
    assert (usd(offer), usd(offer, interruptible=True)) == (9, 7)
    (offer,) = gpuhunt(item(), item(price=11.0, spot=True)).offers
    assert (usd(offer), usd(offer, interruptible=True)) == (10, None)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"gpu_vendor": "google", "gpu_name": "v3"}, "of another maker"), ({"gpu_vendor": None}, "of another maker"),
        ({"gpu_vendor": ["nvidia"]}, "of another maker"), ({"gpu_name": "B9000"}, "card not in the catalogue"),
        ({"gpu_memory": 41.0}, "card not in the catalogue"), ({"price": 0}, "cannot be read"), ({"price": -1.0}, "cannot be read"),
        ({"price": "10"}, "cannot be read"), ({"price": None}, "cannot be read"), ({"price": 1e9}, "cannot be read"),
        ({"price": float("nan")}, "cannot be read"), ({"price": float("inf")}, "cannot be read"), ({"price": True}, "cannot be read"),
        ({"price": 1e-9}, "cannot be read"), ({"gpu_count": 0}, "cannot be read"), ({"gpu_count": 7.5}, "cannot be read"),
        ({"gpu_count": "8"}, "cannot be read"), ({"gpu_count": 10**9}, "cannot be read"), ({"instance_name": ""}, "cannot be read"),
        ({"instance_name": "a" * 10_000}, "cannot be read"), ({"instance_name": "a\x1b[2J"}, "cannot be read"),
        ({"gpu_name": {"a": 1}}, "cannot be read"), ({"spot": "False"}, "cannot be read"), ({"flags": ["runpod-cluster"]}, "clusters only"),
    ],
)  # fmt: skip
def test_rows_of_gpuhunt_that_are_left_out(changes: dict[str, Any], reason: str) -> None:
    found = gpuhunt(item(**changes), item(instance_name="good"))
    assert [offer.instance for offer in found.offers] == ["good"] and found.dropped == {reason: 1}


@pytest.mark.parametrize("figure", ["many", -1, float("nan"), True, [], 10**30, 10**400])
def test_figures_of_the_host_that_make_no_sense_are_not_known(figure: object) -> None:
    (offer,) = gpuhunt(item(cpu=figure, memory=figure, disk_size=figure)).offers
    assert (offer.vcpus, offer.host_memory_gib, offer.disk_gb) == (None, None, None)


def test_the_worker_says_why() -> None:
    with pytest.raises(FetchError) as caught:
        parse_gpuhunt(b'{"error": "no\\n\\u001b[31m route"}', "aws", TODAY)
    assert str(caught.value).startswith("no ") and str(caught.value).isprintable()


PARSERS: dict[str, Callable[[bytes], Parsed]] = {
    "vast": lambda data: parse_vast(data, TODAY),
    "runpod": lambda data: parse_runpod(data, TODAY),
    "azure": lambda data: parse_azure([data], TODAY),
    "gpuhunt": lambda data: parse_gpuhunt(data, "aws", TODAY),
}
LISTS = {"vast": '{"offers": %s}', "runpod": '{"data": {"gpuTypes": %s}}', "azure": '{"Items": %s}', "gpuhunt": '{"items": %s}'}


@pytest.mark.parametrize("who", PARSERS)
@pytest.mark.parametrize(
    "data",
    [b"", b"<html>busy</html>", b"null", b"[]", b"{}", b"5", b'"text"', b"\xff\xfe", b"[" * 200_000, b'{"offers": {"id": 1}}',
     b'{"data": {"gpuTypes": "none"}}', b'{"Items": 3}', b'{"items": null}', b'{"data": 5}'],
)  # fmt: skip
def test_answers_that_are_none(who: str, data: bytes) -> None:
    with pytest.raises(FetchError):
        PARSERS[who](data)


@pytest.mark.parametrize("who", PARSERS)
@pytest.mark.parametrize("rows", ["[]", "[null, 5, [], {}, {}]", '[{"price": NaN, "gpu_ram": Infinity, "retailPrice": -Infinity}]'])
def test_rows_that_are_none(who: str, rows: str) -> None:
    assert PARSERS[who]((LISTS[who] % rows).encode()).offers == ()


@pytest.mark.parametrize("who", ["vast", "runpod", "azure"])
def test_any_field_may_be_anything(who: str, fixtures: Path) -> None:
    """Each field of each row in turn becomes what it should not be: the other rows are read as before."""
    name = {"vast": "synthetic_vast", "runpod": "synthetic_runpod", "azure": "synthetic_azure_1"}[who]
    text = (fixtures / f"{name}.json").read_text()
    path = {"vast": ("offers",), "runpod": ("data", "gpuTypes"), "azure": ("Items",)}[who]
    rows = json.loads(text)
    for key in path:
        rows = rows[key]
    for number, row in enumerate(rows):
        for field in row:
            for value in (None, -1, 0, 10**400, "", "a\x1b[2J" * 9, [], {"a": []}, True, float("nan")):
                broken = json.loads(text)
                place = broken
                for key in path:
                    place = place[key]
                place[number][field] = value
                found = PARSERS[who](json.dumps(broken).encode())
                assert all(offer.cards and offer.gpus > 0 and "\x1b" not in offer.name for offer in found.offers)
                assert all(cost is None or cost.per_hour > 0 for offer in found.offers for cost in (offer.on_demand, offer.interruptible))


@pytest.mark.parametrize(
    ("who", "data"),
    [
        ("vast", b'{"success": false, "msg": "too many requests"}'),
        ("runpod", b'{"errors": [{"message": "too many requests"}], "data": null}'),
        ("gpuhunt", b'{"error": "too many requests"}'),
    ],
)
def test_a_refusal_says_why(who: str, data: bytes) -> None:
    with pytest.raises(FetchError, match="too many requests"):
        PARSERS[who](data)


def test_numbers_of_absurd_length_take_no_time() -> None:
    assert parse_json(b"[" + b"9" * 1_000_000 + b"]")[0] != 0
    assert price(parse_json(b"9" * 1_000_000), "live") is None


def test_too_large_an_answer_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fullstep.offers.live.answers.LARGEST_ANSWER_BYTES", 10)
    with pytest.raises(FetchError, match="more than"):
        parse_json(b"[          ]")


def test_too_many_offers_leave_the_cheapest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fullstep.offers.live.answers.MOST_OFFERS", 2)
    found = gpuhunt(*(item(instance_name=f"x{number}", price=float(number)) for number in (3, 1, 2)))
    assert [usd(offer) for offer in found.offers] == [1, 2] and found.dropped == {"more than are kept": 1}


def test_providers_have_the_names_of_the_table() -> None:
    """Those that the table does not have rent GPUs all the same: nothing is known of how they bill."""
    from fullstep.offers.live.sources import live_sources  # noqa: PLC0415

    assert set(live_sources()) - set(providers()) == {"cloudrift", "lium", "hotaisle", "seeweb"}
