"""``fullstep offers`` by way of ``main``."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest

from fullstep.cli import main
from fullstep.offers.live import refresh as refreshing
from fullstep.offers.live.answers import FetchError, Parsed
from fullstep.offers.live.sources import LiveSource, Way
from fullstep.offers.market import market
from fullstep.offers.offer import PRICE_KIND_WORDS

OWN = """
[[machine]]
name = "lab box"
gpu = "A30"
gpus = 2
machines = 3
power_kw = 1
power_price_per_kwh = "0.30"
currency = "EUR"

[[provider]]
name = "selectel"
interrupted_every_hours = 9

[rates]
EUR = "1.20"
on = 2026-11-20
"""


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the cache nor the machines of whoever runs the tests."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("FULLSTEP_CACHE", "FULLSTEP_MACHINES", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


def run(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert main(["offers", *words]) == code
    captured = capsys.readouterr()
    return captured.out if code == 0 else captured.out + captured.err


def listed(capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    return json.loads(run(capsys, *words, "--json"))


def test_a_price_never_stands_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """Its kind, its day and its source beside it, and what the source is."""
    out = " ".join(run(capsys, "--gpu", "H100", "--gpus", "8", "--provider", "aws", "azure").split())
    assert "55.04 6.880 8x H100-SXM 79.6 NVLink 900 3200 RDMA 192 2048 30400" in out
    assert "aws us-east-1 p5.48xlarge · list price · 2026-07-20 (old) · ka · interruptible 26.42 USD/h, estimated" in out
    assert "ka: github.com/aws/karpenter-provider-aws (Apache-2.0)" in out and "fullstep offers refresh fetches new prices" in out
    found = listed(capsys, "--gpu", "H100", "--gpus", "8", "--provider", "aws")
    assert found["sources"]["ka"] == {"where": "github.com/aws/karpenter-provider-aws", "licence": "Apache-2.0"}
    assert found["sources"].keys() == {row["source"] for row in found["offers"]}


def test_every_row_has_kind_day_and_source(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "--limit", "5000")
    entries = re.split(r"\n(?= {1,4}\s*[0-9.,]+ +[0-9.,]+ {2}\d+x )", out.split("\n\n")[0])[1:]
    assert len(entries) > 1000
    kinds = "|".join(map(re.escape, PRICE_KIND_WORDS.values()))
    for entry in entries:
        assert re.search(rf"({kinds}) · 20\d\d-\d\d-\d\d (\(old\) )?· \S", " ".join(entry.split())), entry


def test_a_form_that_is_not_said_shows_all_cards(capsys: pytest.CaptureFixture[str]) -> None:
    out = " ".join(run(capsys, "--gpu", "H200", "--provider", "runpod").split())
    assert "1x H200?" in out and "may be H200-SXM (140.4 GiB) or H200-NVL (140.4 GiB)" in out


@pytest.mark.parametrize("width", ["80", "100", "140"])
@pytest.mark.parametrize("words", [("--limit", "2000"), ("--limit", "2000", "--interruptible", "--currency", "RUB"),
                                   ("--compare", "aws", "selectel", "azure eastus Standard_ND96isr_H100_v5"), ("--provider", "selectel"),
                                   ("--max-price", "0.001")])  # fmt: skip
def test_it_fits_the_paper(width: str, words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", width)
    monkeypatch.setenv("NO_COLOR", "1")
    out = run(capsys, *words)
    assert max(map(len, out.splitlines())) <= int(width) and "\x1b" not in out


def test_signs_that_a_stream_cannot_print(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from fullstep.cli import main; raise SystemExit(main(['offers', '--gpu', 'L4', '--limit', '3']))"]
    done = subprocess.run(command, capture_output=True, check=False, env={"PYTHONIOENCODING": "ascii", "HOME": str(tmp_path)}, cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.isascii() and b"L4" in done.stdout


def test_filters(capsys: pytest.CaptureFixture[str]) -> None:
    rows = listed(capsys, "--gpu", "H100", "--gpus", "8", "--max-price", "60", "--network")["offers"]
    assert rows and all(
        row["gpus"] == 8 and Decimal(row["price"]["per_hour"]) <= 60 and row["network_gbit_s"] is not None for row in rows
    )
    assert all(any("H100" in card["key"] for card in row["cards"]) for row in rows)
    prices = [Decimal(row["price"]["per_hour"]) for row in rows]
    assert prices == sorted(prices)
    rows = listed(capsys, "--region", "US-EAST", "--min-gpus", "2", "--min-memory-gib", "79.6", "--limit", "500")["offers"]
    assert rows and all("us-east" in row["region"] and row["gpus"] >= 2 for row in rows)
    assert all(card["memory_bytes"] / 2**30 >= 79.6 for row in rows for card in row["cards"])


def test_interruptible(capsys: pytest.CaptureFixture[str]) -> None:
    found = listed(capsys, "--provider", "gcp", "--gpu", "H100-SXM", "--gpus", "8", "--region", "us-central1", "--interruptible")
    (row,) = [row for row in found["offers"] if row["instance"] == "a3-highgpu-8g"]
    assert row["price"]["kind"] == "list" and round(Decimal(row["price"]["per_hour"]), 2) == Decimal("50.61")


@pytest.mark.parametrize("sort", ["price", "gpu-price", "memory"])
def test_orders(sort: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = listed(capsys, "--sort", sort, "--limit", "200")["offers"]
    keys = {
        "price": [Decimal(row["price"]["per_hour"]) for row in rows],
        "gpu-price": [Decimal(row["price"]["per_gpu_hour"]) for row in rows],
        "memory": [-min(card["memory_bytes"] for card in row["cards"]) * row["gpus"] for row in rows],
    }
    assert keys[sort] == sorted(keys[sort])


def test_own_machines_rates_and_terms(capsys: pytest.CaptureFixture[str]) -> None:
    """1 kW at 0.30 EUR is 0.30 EUR an hour, at 1.20 USD for a euro 0.36 USD. Nobody published what an A30's driver reports: ~."""
    Path("mine.toml").write_text(OWN)
    out = " ".join(run(capsys, "--machines", "mine.toml", "--provider", "own").split())
    assert "0.360 0.180 2x A30 ~23.5 bridge 200" in out
    assert "own lab box · your machine: power and hosting" in out and "mine.toml · 3 of them" in out
    assert "1 EUR = 1.20 USD on 2026-11-20" in out
    out = " ".join(run(capsys, "--machines", "mine.toml", "--provider", "selectel").split())
    assert "every 9 h in the mean, by your file" in out and "24 h, then stopped" in out
    row = listed(capsys, "--machines", "mine.toml", "--provider", "own", "--currency", "EUR")["offers"][0]
    assert Decimal(row["price"]["per_hour"]) == Decimal("0.30") and row["cards"][0]["memory_evidence"] == "assumed"


def test_providers_without_a_price_come_last(capsys: pytest.CaptureFixture[str]) -> None:
    out = " ".join(run(capsys, "--limit", "1").split())
    assert "Price unknown: enter yours in machines.toml" in out and "yandex-cloud (RU)" in out.rpartition("Price unknown")[2]
    out = " ".join(run(capsys, "--provider", "selectel").split())
    assert out.startswith("No offer: no price of selectel is known.") and "Billing step 1 h" in out and "Storage unknown" in out


def test_how_many_more(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "--limit", "2")
    total = len([offer for offer in market().offers if offer.on_demand])
    assert f"2 of {total} offers; --limit {total} shows all." in out
    assert run(capsys).count("\n") < 150 and listed(capsys)["found"] == total and len(listed(capsys)["offers"]) == 30


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--gpu", "H100", "--gpus", "7"), "--gpus 7 leaves none of"),
        (("--gpu", "H100", "--max-price", "0.1"), "--max-price 0.1 leaves none of"),
        (("--provider", "lambda", "--gpu", "MI300X"), "--gpu MI300X leaves none of"),
        (("--min-memory-gib", "500"), "--min-memory-gib 500.0 leaves none of"),
        (("--provider", "lambda", "--network"), "--network leaves none of"),
        (("--provider", "lambda", "--interruptible"), "--interruptible leaves none of"),
        (("--provider", "runpod", "--region", "us-east"), "--region us-east leaves none of"),
    ],
)
def test_which_filter_left_nothing(words: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert why in " ".join(run(capsys, *words).split())
    assert why in listed(capsys, *words)["emptied_by"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--gpu", "H1000"), "nearest: H100-PCIE"),
        (("--provider", "lamda"), 'Did you mean "lambda"?'),
        (("--region", "us-est-1"), 'Did you mean "us-east-1"?'),
        (("--currency", "ero"), "Did you mean EUR?"),
        (("--sort", "prise"), 'Did you mean "price"?'),
        (("--gpu", "H1000", "--provider", "lamda"), 'Did you mean "lambda"?'),
        (("refesh",), 'Did you mean "refresh"?'),
        (("--gpus", "0"), "no whole number"),
        (("--limit", "1e3"), "no whole number"),
        (("--max-price", "nan"), "no number above 0"),
        (("--max-price", "9" * 5000), "no number above 0"),
        (("--min-memory-gib", "-5"), "no number above 0"),
        (("--machines", "none.toml"), "no such file"),
        (("--timeout", "5"), "without refresh"),
        (("--gp", "H100"), "Did you mean --gpu?"),
        (("--compare", "aws"), "1 names"),
        (("--compare", "aws", "lamda"), 'Did you mean "lambda"?'),
        (("--compare", "aws", "p5.48xlrge"), 'Did you mean "p5.48xlarge"?'),
        (("--compare", *["aws"] * 9), "9 names"),
        (("--compare", "aws", "p5.48xlarge", "--gpu", "L4"), "another card than --gpu"),
        (("refresh", "--gpu", "H100"), "does not go with refresh"),
        (("refresh", "--provider", "selectel"), "machines.toml"),
        (("refresh", "--timeout", "1000"), "1 to 600"),
    ],
)
def test_wrong_words(words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, *words, code=2)
    assert told in out and "Traceback" not in out and len(out) < 3000


def test_compare_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "--compare", "lambda", "aws us-east-1 p5.48xlarge")
    words = " ".join(out.split())
    for label in ("Cheapest", "On demand", "Taken away", "Seen", "GPUs", "Between", "Billing step", "When stopped", "Notice", "Longest run",
                  "Storage", "Egress", "Access", "Fabric", "Said by"):  # fmt: skip
        assert re.search(rf"^{label}", out, flags=re.MULTILINE), label
    for told in ("55.04 USD/h, 6.880 a GPU", "cannot be stopped, only ended", "2 min", "3200 RDMA Gbit/s"):
        assert told in words
    assert "fullstep offers refresh" in words


def test_of_many_regions_the_cheapest_is_compared(capsys: pytest.CaptureFixture[str]) -> None:
    found = listed(capsys, "--compare", "azure", "Standard_ND96isr_H100_v5")["compared"]
    assert found[0]["offer"] is None and found[1]["alike"] > 10
    same = [offer.on_demand.per_hour for offer in market().offers if offer.instance == "Standard_ND96isr_H100_v5" and offer.on_demand]
    assert Decimal(found[1]["on_demand"]["per_hour"]) == min(same)
    assert "name the region for another" in " ".join(run(capsys, "--compare", "azure", "Standard_ND96isr_H100_v5").split())


def test_compare_by_card_and_without_a_price(capsys: pytest.CaptureFixture[str]) -> None:
    found = listed(capsys, "--compare", "aws", "selectel", "--gpu", "H100", "--currency", "EUR")["compared"]
    assert [row["cards"][0]["key"] for row in found[0]["by_card"]] == ["H100-SXM"] and found[1]["by_card"] == []
    assert found[0]["by_card"][0]["price"]["currency"] == "EUR" and found[1]["provider"]["longest_hours"] == 24
    assert "price unknown" in run(capsys, "--compare", "aws", "selectel")


def test_many_columns_go_below_one_another(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = run(capsys, "--compare", "aws", "gcp", "azure", "lambda", "vast")
    assert out.count("Billing step") == 3


def fetched(_: object, __: object, ___: object) -> Parsed:
    return Parsed(tuple(offer for offer in market(saved=False).offers if offer.provider == "vast"), {"card not in the catalogue": 2})


def fails(_: object, __: object, ___: object) -> Parsed:
    raise FetchError("HTTP 503 busy")


def test_refresh(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sources = {"vast": LiveSource((Way("here", fetched),)), "aws": LiveSource((Way("there", fails),)),
               "crusoe": LiveSource((Way("there", fails),), ("NO_SUCH_KEY",))}  # fmt: skip
    monkeypatch.setattr(refreshing, "live_sources", lambda: sources)
    out = run(capsys, "refresh")
    assert "untried" in out and re.search(r"^vast +done +46 offers from here; left out: 2 card not in the catalogue$", out, re.MULTILINE)
    assert re.search(r"^aws +FAILED +there: HTTP 503 busy$", out, re.MULTILINE)
    assert "Not asked, needs NO_SUCH_KEY in the environment: crusoe." in out
    assert f"Saved 46 offers of 1 provider in {tmp_path / 'cache' / 'fullstep' / 'offers'}" in out
    found = json.loads(run(capsys, "refresh", "--provider", "vast", "--json"))
    assert found["providers"][0]["state"] == "done" and found["providers"][0]["offers"] == 46


def test_refresh_that_brings_nothing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refreshing, "live_sources", lambda: {"aws": LiveSource((Way("there", fails),))})
    assert "Nothing could be fetched" in run(capsys, "refresh", code=4)
    monkeypatch.setenv("FULLSTEP_CACHE", "off")
    assert "FULLSTEP_CACHE" in run(capsys, "refresh", code=2)


def test_help_says_what_is_untried_and_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    out = " ".join(run(capsys, "--help").split())
    assert "untried" in out and "4 where none did" in out


def test_a_list_needs_no_network_and_no_gpuhunt() -> None:
    code = (
        "import sys\nfrom fullstep.cli import main\nassert main(['offers', '--limit', '1', '--json']) == 0\n"
        "assert not {'gpuhunt', 'urllib.request', 'ssl', 'requests'} & set(sys.modules), sorted(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
