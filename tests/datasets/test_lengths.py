"""Lengths, padding and packing against arithmetic by hand, enumeration, and the textbook algorithm item by item."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullstep.datasets import (
    Distribution,
    padding_share_in_order,
    padding_share_shuffled,
    padding_share_to_sequence,
    rows_packed_by_best_fit,
    rows_packed_by_cutting,
)

LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=60)


def test_a_small_data_set_by_hand() -> None:
    rows = Distribution([3, 1, 4, 1, 5, 9, 2, 6])
    assert (rows.rows, rows.tokens, rows.longest) == (8, 31, 9)
    assert [rows.percentile(percent) for percent in (1, 50, 90, 99, 100)] == [1, 3, 9, 9, 9]
    assert rows.rows_longer_than(5) == 2 and rows.cut_at(5).tokens == 31 - 4 - 1
    assert rows.histogram() == [(1, 2), (2, 1), (4, 2), (8, 2), (16, 1)]


def test_nearest_rank_of_a_hundred() -> None:
    rows = Distribution(range(1, 101))
    assert [rows.percentile(percent) for percent in (0.5, 50, 90, 99)] == [1, 50, 90, 99]


def test_padding_by_hand() -> None:
    lengths = [2, 8, 4, 4, 6]
    assert padding_share_in_order(lengths, 2, 100) == pytest.approx(1 - 24 / (16 + 8 + 6))
    assert padding_share_in_order(lengths, 2, 5) == pytest.approx(1 - (2 + 5 + 4 + 4 + 5) / (10 + 8 + 5))
    assert padding_share_to_sequence(Distribution(lengths), 10) == pytest.approx(1 - 24 / 50)
    assert padding_share_in_order(lengths, 1, 100) == padding_share_shuffled(Distribution(lengths), 1, 100) == 0


@pytest.mark.parametrize("micro_batch", [2, 3, 4])
def test_padding_of_shuffled_rows_is_that_of_all_batches_together(micro_batch: int) -> None:
    lengths = [1, 2, 2, 7, 10]
    batches = list(combinations(lengths, micro_batch))
    expected = 1 - sum(map(sum, batches)) / sum(micro_batch * max(batch) for batch in batches)
    assert padding_share_shuffled(Distribution(lengths), micro_batch, 100) == pytest.approx(expected)


def test_cutting_loses_nothing() -> None:
    assert rows_packed_by_cutting(Distribution([10, 1]), 4) == 3
    assert rows_packed_by_cutting(Distribution([4, 4]), 4) == 2


def best_fit_decreasing(lengths: list[int], sequence: int) -> int:
    """One row after the other, as textbooks have it."""
    rooms: list[int] = []
    for length in sorted((min(length, sequence) for length in lengths), reverse=True):
        fitting = [room for room in rooms if room >= length]
        if fitting:
            rooms.remove(min(fitting))
        rooms.append((min(fitting) if fitting else sequence) - length)
    return len(rooms)


@given(LENGTHS, st.integers(1, 50))
def test_best_fit_is_the_textbook_one(lengths: list[int], sequence: int) -> None:
    found = rows_packed_by_best_fit(Distribution(lengths), sequence)
    assert found == best_fit_decreasing(lengths, sequence)
    assert found >= rows_packed_by_cutting(Distribution(lengths).cut_at(sequence), sequence)


def test_a_million_rows_are_packed_at_once() -> None:
    """2 and 3 make 5: a third of a million of each kind of pair, and what is left of the longer ones alone."""
    rows = Distribution([2] * 300_000 + [3] * 300_000 + [5] * 400_000)
    assert rows_packed_by_best_fit(rows, 5) == 700_000


@given(LENGTHS, st.integers(1, 5), st.integers(1, 50))
def test_shares_are_shares(lengths: list[int], micro_batch: int, sequence: int) -> None:
    rows = Distribution(lengths)
    in_order = padding_share_in_order(lengths, micro_batch, sequence)
    shuffled = padding_share_shuffled(rows, micro_batch, sequence)
    assert 0 <= in_order <= padding_share_to_sequence(rows, sequence) + 1e-12
    assert -1e-12 <= shuffled <= padding_share_to_sequence(rows, sequence) + 1e-12
