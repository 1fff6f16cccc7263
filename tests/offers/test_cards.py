"""Which card the words of a seller mean."""

from __future__ import annotations

import pytest

from fullstep.offers.cards import offered_cards


@pytest.mark.parametrize(
    ("gpu", "form", "memory_gb", "keys"),
    [
        ("H100", "SXM", 80, ["H100-SXM"]),
        ("H100", "PCIe", 80, ["H100-PCIE"]),
        ("H100", "NVL", 94, ["H100-NVL"]),
        ("H100", "", 94, ["H100-NVL"]),
        ("H100", "", 80, ["H100-PCIE", "H100-SXM"]),
        ("A100", "SXM", 40, ["A100-SXM4-40GB"]),
        ("A100", "NVLink", 80, ["A100-SXM4-80GB"]),
        ("A100", "", 80, ["A100-PCIE-80GB", "A100-SXM4-80GB"]),
        ("B200", "", 192, ["B200"]),
        ("B200", "", 179.06, ["B200"]),
        ("MI300X", "OAM", 192, ["MI300X"]),
        ("RTX PRO 6000", "WS", 96, ["RTXPRO6000-WS"]),
        ("V100", "", 32, ["V100-SXM2-32GB", "V100-PCIE-32GB"]),
        ("T4", "PCIe", None, ["T4"]),
    ],
)
def test_words_of_sellers(gpu: str, form: str, memory_gb: float | None, keys: list[str]) -> None:
    assert sorted(card.key for card in offered_cards(gpu, form, memory_gb)) == sorted(keys)


@pytest.mark.parametrize(
    ("gpu", "memory_gb"), [("RTX 4090", 48), ("B300", 180), ("L40", 40), ("H1000", None), ("", None), ("\x1b[31m", None)]
)
def test_what_is_no_such_card(gpu: str, memory_gb: float | None) -> None:
    """A card with memory that it is not made with is another one."""
    assert offered_cards(gpu, "", memory_gb) == ()
