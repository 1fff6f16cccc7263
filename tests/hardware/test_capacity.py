"""What torch can use: as printed by torch, and the rule for cards that nobody reported."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullstep.hardware import all_cards, find_card, is_usable_seen, usable_bytes
from fullstep.quantities import GIB, MIB


@pytest.mark.parametrize(
    ("key", "printed_gib"),
    [
        ("A100-SXM4-80GB", 79.14),
        ("H100-SXM", 79.11),
        ("L4", 22.03),
        ("T4", 14.56),
        ("B200", 178.35),
        ("RTX5090", 31.36),
        ("H200-SXM", 139.72),
    ],
)
def test_seen_figures_are_those_that_torch_printed(key: str, printed_gib: float) -> None:
    assert is_usable_seen(find_card(key))
    assert usable_bytes(find_card(key)) / GIB == pytest.approx(printed_gib, abs=0.005)


def test_a_card_that_nobody_reported_takes_the_share_of_the_nearest_in_size() -> None:
    """A6000 and RTX 6000 Ada have the same total of 49,140 MiB; torch printed 47.37 GiB on the latter."""
    card = find_card("A6000")
    assert not is_usable_seen(card)
    assert usable_bytes(card) == pytest.approx(47.37 * GIB, rel=1e-6)


def test_a_total_that_the_user_states_is_treated_like_a_card() -> None:
    assert usable_bytes(81559 * MIB) == pytest.approx(79.11 * GIB, rel=1e-6)


def test_usable_is_never_more_than_the_total_and_never_much_less() -> None:
    for card in all_cards():
        assert 0.96 * card.total_bytes < usable_bytes(card) <= card.total_bytes, card.key


@given(total=st.integers(min_value=2 * GIB, max_value=600 * GIB))
def test_any_total_leaves_something_to_the_driver(total: int) -> None:
    assert 0.96 * total < usable_bytes(total) < total
