"""The order of the data: every row once in each epoch, whatever the number of ranks."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fullstep.resume import DataOrder, LoadError

RANKS = (1, 2, 3, 4, 6, 12)
PARTS = st.lists(st.tuples(st.integers(0, 7), st.sampled_from(RANKS)), min_size=1, max_size=5)
"""so many steps on so many ranks, one part after the other"""


def _rows(order: DataOrder, parts: list[tuple[int, int]]) -> list[int]:
    """Of all ranks, in order; each rank has an order of its own, and each part begins with what the one before saved."""
    rows: list[int] = []
    state = order.state_dict()
    for steps, ranks in parts:
        orders = [DataOrder(order._rows, order._rows_per_step, order._seed, shuffled=order._shuffled) for _ in range(ranks)]
        for each in orders:
            each.load_state_dict(state)
        for _ in range(steps):
            for rank, each in enumerate(orders):
                rows += each.next(rank, ranks)
        state = orders[0].state_dict()
        assert all(each.state_dict() == state for each in orders)
    return rows


@settings(max_examples=60, deadline=None)
@given(rows=st.integers(1, 50), seed=st.integers(0, 3), shuffled=st.booleans(), parts=PARTS)
def test_every_row_once_in_each_epoch_whatever_the_number_of_ranks(
    rows: int, seed: int, shuffled: bool, parts: list[tuple[int, int]]
) -> None:
    order = DataOrder(rows, 12, seed, shuffled=shuffled)
    seen = _rows(order, parts)
    for first in range(0, len(seen) - rows + 1, rows):
        assert sorted(seen[first : first + rows]) == list(range(rows))
    assert max(Counter(seen[len(seen) // rows * rows :]).values(), default=1) == 1
    alone = DataOrder(rows, 12, seed, shuffled=shuffled)
    assert seen == [row for _ in range(sum(steps for steps, _ in parts)) for row in alone.next()]


def test_epochs_differ_and_seeds_do() -> None:
    order, other = DataOrder(100, 100, seed=0), DataOrder(100, 100, seed=1)
    first, second, elsewhere = order.next(), order.next(), other.next()
    assert sorted(first) == sorted(second) == sorted(elsewhere) == list(range(100))
    assert first not in (second, elsewhere, list(range(100)))
    assert order.epoch == 2 and order.consumed == 200


def test_another_order_is_not_gone_on_with() -> None:
    state = DataOrder(10, 4, seed=1).state_dict()
    DataOrder(10, 5, seed=1).load_state_dict(state)  # rows of a step may change
    for other in (DataOrder(11, 4, seed=1), DataOrder(10, 4, seed=2), DataOrder(10, 4, seed=1, shuffled=False)):
        with pytest.raises(LoadError, match="the data was ordered by"):
            other.load_state_dict(state)
        assert other.consumed == 0


def test_what_cannot_be_divided() -> None:
    order = DataOrder(10, 4)
    with pytest.raises(ValueError, match="4 rows of a step cannot be divided among 3 ranks"):
        order.next(0, 3)
    assert order.consumed == 0
    for rows, of_a_step in ((0, 1), (1, 0)):
        with pytest.raises(ValueError, match="both must be at least 1"):
            DataOrder(rows, of_a_step)
