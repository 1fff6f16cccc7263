"""Offers that were fetched come back as they were; what cannot be read is as if it were not there."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from fullstep.hardware import find_card
from fullstep.offers.catalogue import bundled_offers
from fullstep.offers.offer import Offer, Price
from fullstep.offers.saved import save_offers, saved_folder, saved_offers

OFFER = Offer(
    provider="vast", region="se", instance="H100 SXM x8", gpu="H100 SXM", cards=(find_card("H100-SXM"),), gpus=8,
    on_demand=Price(Decimal("19.25"), "USD", "live"), interruptible=None, captured_on=date(2026, 11, 30), source="console.vast.ai",
    vcpus=64.0, host_memory_gib=512.0,
)  # fmt: skip


def folder() -> Path:
    found = saved_folder()
    assert found is not None
    return found


def changed(**values: Any) -> list[Offer]:
    path = save_offers("vast", [OFFER], folder())
    document = json.loads(path.read_text())
    document["offers"][0] |= values
    path.write_text(json.dumps(document))
    return list(saved_offers())


def test_there_and_back() -> None:
    several = [replace(offer, captured_on=date(2026, 11, 30)) for offer in bundled_offers()]
    save_offers("mixed", [OFFER, *several], folder())
    assert list(saved_offers()) == [OFFER, *several]


def test_a_provider_is_replaced_and_the_others_stay() -> None:
    save_offers("vast", [OFFER, replace(OFFER, region="us")], folder())
    save_offers("aws", [replace(OFFER, provider="aws")], folder())
    save_offers("vast", [OFFER], folder())
    assert [offer.provider for offer in saved_offers()] == ["aws", "vast"]
    assert [path.name for path in folder().iterdir() if path.suffix != ".json"] == []


def test_nothing_is_saved_where_the_cache_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    save_offers("vast", [OFFER], folder())
    monkeypatch.setenv("FULLSTEP_CACHE", "off")
    assert saved_folder() is None and list(saved_offers()) == []


@pytest.mark.parametrize("name", ["../vast", "a/b", "", "Vast", "a" * 99, ".hidden", "vast\n"])
def test_names_that_are_no_file_names(name: str) -> None:
    with pytest.raises(ValueError, match=r"^"):
        save_offers(name, [OFFER], folder())


@pytest.mark.parametrize(
    "values",
    [
        {"cards": ["none"]}, {"cards": 3}, {"cards": []}, {"on_demand": ["NaN", "USD", "live"]}, {"on_demand": ["-1", "USD", "live"]},
        {"on_demand": ["1", "BTC", "live"]}, {"on_demand": ["1", "USD", "gift"]}, {"on_demand": "1"}, {"captured_on": "soon"},
        {"gpus": "8"}, {"gpus": 0}, {"gpus": True}, {"vcpus": "many"}, {"region": None}, {"instance": 5}, {"network_gbit_s": -1},
        {"rdma": 1}, {"instance": "a\x1b[2J"}, {"host_memory_gib": 1e300}, {"host_memory_gib": 10**400}, {"vcpus": 200_000},
        {"on_demand": ["1e400", "USD", "live"]}, {"on_demand": [True, "USD", "live"]}, {"gpus": 100_000},
    ],
)  # fmt: skip
def test_rows_that_make_no_sense_are_not_there(values: dict[str, Any]) -> None:
    assert changed(**values) == []


@pytest.mark.parametrize("text", ["", "null", "[]", "{}", '{"form": 2, "offers": []}', '{"form": 1, "offers": 3}', "[" * 100_000, "\x00"])
def test_files_that_make_no_sense_harm_no_other(text: str) -> None:
    save_offers("vast", [OFFER], folder())
    (folder() / "aws.json").write_text(text)
    assert list(saved_offers()) == [OFFER]


def test_what_is_no_file_is_not_waited_for() -> None:
    save_offers("vast", [OFFER], folder())
    os.mkfifo(folder() / "pipe.json")
    (folder() / "zero.json").symlink_to("/dev/zero")
    assert list(saved_offers()) == [OFFER]


def test_a_folder_that_cannot_be_read_is_as_if_it_were_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_dir", refuses)
    assert list(saved_offers()) == []
