"""The catalogue: its figures against data sheets and drivers, and the names it understands."""

from __future__ import annotations

import csv
import subprocess
import sys

import pytest

from fullstep.errors import InputError
from fullstep.hardware import all_cards, find_card
from fullstep.hardware.catalogue import DATA, card_rows, plain_name
from fullstep.quantities import GIB, MIB


def test_h100_has_the_figures_of_its_data_sheet() -> None:
    card = find_card("H100-SXM")
    assert card.marketing_bytes == 80 * 10**9
    assert card.reported_bytes == 81559 * MIB
    assert card.memory_bytes_per_second == 3.35e12
    assert card.bf16_flop_per_second == 989e12
    assert card.fp8_flop_per_second == 1979e12
    assert card.link == "nvswitch"
    assert card.link_bytes_per_second_bidirectional == 900e9
    assert card.power_watt == 700
    assert card.trains_bf16 and card.trains_fp8 and card.has_flash_attention


@pytest.mark.parametrize(
    ("key", "reported_gib"),
    [("H100-SXM", 79.65), ("L40S", 44.99), ("A10G", 22.49), ("L4", 22.49), ("H200-SXM", 140.4), ("B200", 179.06), ("A100-SXM4-80GB", 80.0)],
)
def test_totals_are_what_drivers_report(key: str, reported_gib: float) -> None:
    assert find_card(key).total_bytes / GIB == pytest.approx(reported_gib, abs=0.005)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("NVIDIA H100 80GB HBM3", "H100-SXM"),
        ("H100-SXM5-80GB", "H100-SXM"),
        ("NVIDIA H100 PCIe", "H100-PCIE"),
        ("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"),
        ("A100-SXM-80GB", "A100-SXM4-80GB"),
        ("NVIDIA A100 80GB PCIe", "A100-PCIE-80GB"),
        ("NVIDIA A100-PCIE-40GB", "A100-PCIE-40GB"),
        ("Tesla T4", "T4"),
        ("Tesla V100-SXM2-16GB", "V100-SXM2-16GB"),
        ("NVIDIA GeForce RTX 4090", "RTX4090"),
        ("RTX 4090", "RTX4090"),
        ("4090", "RTX4090"),
        ("rtx-4090", "RTX4090"),
        ("NVIDIA RTX A6000", "A6000"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX6000Ada"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA A10G", "A10G"),
        ("NVIDIA H200", "H200-SXM"),
        ("NVIDIA B200", "B200"),
        ("RTX 4060 Ti 16GB", "RTX4060Ti-16GB"),
        ("RTX 4070 Ti SUPER", "RTX4070TiSuper"),
        ("RTX 3060 12GB", "RTX3060-12GB"),
        ("Titan RTX", "TITANRTX"),
        ("Tesla P40", "P40"),
        ("AMD Instinct MI300X", "MI300X"),
    ],
)
def test_names_that_drivers_and_people_write(name: str, key: str) -> None:
    assert find_card(name).key == key


@pytest.mark.parametrize(
    ("name", "candidates"),
    [
        ("A100", ["A100-PCIE-40GB", "A100-SXM4-40GB", "A100-PCIE-80GB", "A100-SXM4-80GB"]),
        ("a100-80gb", ["A100-PCIE-80GB", "A100-SXM4-80GB"]),
        ("H100", ["H100-PCIE", "H100-SXM", "H100-SXM-96GB", "H100-NVL"]),
        ("V100", ["V100-SXM2-16GB", "V100-SXM2-32GB", "V100-PCIE-16GB", "V100-PCIE-32GB"]),
        ("RTX 3060", ["RTX3060-8GB", "RTX3060-12GB"]),
        ("RTX 4060 Ti", ["RTX4060Ti-8GB", "RTX4060Ti-16GB"]),
        ("RTX 6000", ["QuadroRTX6000", "RTX6000Ada", "RTXPRO6000-WS"]),
    ],
)
def test_a_name_sold_in_several_forms_is_refused_with_the_list(name: str, candidates: list[str]) -> None:
    with pytest.raises(InputError, match=rf'"{name}" is sold in \d forms') as caught:
        find_card(name)
    for key in candidates:
        assert key in str(caught.value)


@pytest.mark.parametrize(
    ("name", "near"), [("H10O-SXM", "H100-SXM"), ("RTX 4080 Ti", "RTX4080"), ("A1000", "A100-SXM4-80GB"), ("mi300", "MI300X")]
)
def test_an_unknown_name_gets_the_nearest_ones(name: str, near: str) -> None:
    with pytest.raises(InputError, match="no card is known as") as caught:
        find_card(name)
    assert near in str(caught.value)


def test_an_absurd_name_is_refused_quickly() -> None:
    with pytest.raises(InputError, match="a name of 10000000 characters"):
        find_card("x" * 10_000_000)


def test_every_key_finds_itself() -> None:
    for card in all_cards():
        assert find_card(card.key) is card
        assert find_card(card.key.lower().replace("-", " ")) is card


def test_no_alias_is_another_cards_key() -> None:
    keys = {plain_name(key): key for key in card_rows()}
    assert len(keys) == len(card_rows())
    for key, row in card_rows().items():
        for alias in filter(None, row["aliases"].split("|")):
            assert keys.get(plain_name(alias), key) == key, f"{alias} of {key}"


def test_figures_are_possible() -> None:
    for card in all_cards():
        assert 0.9 * card.marketing_bytes <= card.total_bytes <= 1.08 * card.marketing_bytes, card.key
        assert card.memory_bytes_per_second is not None and 1e11 < card.memory_bytes_per_second < 1e13, card.key
        assert (card.bridge_gpus is not None) == (card.link == "nvlink_bridge"), card.key
        assert (card.link_bytes_per_second_bidirectional is None) == card.link.startswith("pcie"), card.key
        if card.achieved_bf16_flop_per_second is not None:
            assert card.bf16_flop_per_second is not None
            assert card.achieved_bf16_flop_per_second < card.bf16_flop_per_second, card.key
        if not card.trains_bf16:
            assert card.bf16_flop_per_second is None, card.key


def test_every_figure_has_a_source_that_the_sources_table_names() -> None:
    with (DATA / "cards_sources.csv").open(encoding="utf-8", newline="") as file:
        known = {row["code"] for row in csv.DictReader(file)}
    for row in card_rows().values():
        assert set(row["sources"].split(";")) <= known, row["key"]
        assert bool(row["driver_mib"]) == bool(row["driver_source"]), row["key"]
        assert bool(row["usable_gib"]) == bool(row["usable_source"]), row["key"]
        assert row["seen"], row["key"]


def test_the_catalogue_is_not_read_before_it_is_asked_for() -> None:
    code = (
        "import sys, fullstep.hardware\n"
        "from fullstep.hardware import catalogue\n"
        "assert catalogue.card_rows.cache_info().currsize == 0\n"
        "assert 'difflib' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
