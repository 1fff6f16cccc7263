"""Who sits where, and what each sends: by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullstep.physics.network.collective import Collective, Kind, ring_bytes, sent_bytes, spread


@pytest.mark.parametrize(
    ("ranks", "stride", "gpus", "nodes", "per_node"),
    [
        (8, 1, 8, 1, 8),
        (16, 1, 8, 2, 8),
        (2, 8, 8, 2, 1),  # replicas of a node
        (4, 2, 8, 1, 4),  # data-parallel over pairs of tensor ranks
        (16, 2, 8, 4, 4),
        (3, 16, 8, 3, 1),  # each two nodes apart
        (4, 1, 6, 2, 2),  # ranks 4 to 7 lie across nodes of 6
        (2, 1, 1, 2, 1),
    ],
)
def test_where_ranks_sit(ranks: int, stride: int, gpus: int, nodes: int, per_node: int) -> None:
    assert spread(ranks, stride, gpus) == (ranks, nodes, per_node)


@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 9))
def test_widest_group_by_counting(ranks: int, stride: int, gpus: int) -> None:
    """Against all groups of a long row of nodes, one by one."""
    firsts = [block * ranks * stride + offset for block in range(gpus) for offset in range(stride)]
    widest = max(len({(first + stride * member) // gpus for member in range(ranks)}) for first in firsts)
    assert spread(ranks, stride, gpus).nodes == widest


def test_an_all_to_all_leaves_the_node_for_ranks_that_are_elsewhere() -> None:
    """Four ranks on two nodes: of 100 bytes one stays, 25 go to the neighbour, 50 to the other node."""
    exchange = Collective("", "all_to_all", 100.0, 4, 2, 2, 1, "forward", False)
    assert sent_bytes(exchange) == (25.0, 50.0)


def test_a_chain_of_four_has_three_hops_and_each_gpu_sends_one() -> None:
    copies = Collective("", "send", 10.0, 4, 1, 4, 3, "forward", False)
    assert sent_bytes(copies) == (10.0, 0.0)


@given(st.sampled_from(["all_gather", "reduce_scatter", "all_reduce", "all_to_all"]), st.integers(1, 6), st.integers(1, 8))
def test_nothing_is_lost_between_nodes(kind: Kind, nodes: int, per_node: int) -> None:
    one = Collective("", kind, 840.0, nodes * per_node, nodes, per_node, 2, "forward", False)
    assert sum(sent_bytes(one)) == pytest.approx(2 * ring_bytes(kind, 840.0, nodes * per_node))


def test_a_node_sends_what_one_rank_of_the_ring_sends_however_many_gpus_it_has() -> None:
    for per_node in (1, 2, 8):
        one = Collective("", "all_gather", 1.0, 2 * per_node, 2, per_node, 1, "forward", False)
        assert per_node * sent_bytes(one).between_nodes == pytest.approx((2 * per_node - 1) / (2 * per_node))
