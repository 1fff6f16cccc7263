"""What a record of links has stands in the place of what is assumed: on its own ranks, on fewer of the node, and as a share of a line."""

from __future__ import annotations

import pytest

from fullstep.hardware.measured_line import MeasuredLine
from fullstep.physics.network.collective import Collective
from fullstep.physics.network.cost import collective_seconds
from fullstep.physics.network.fabric import Fabric, measured_share
from fullstep.quantities import GBIT_BYTES, Bounds

PLAIN = Fabric("nvswitch", "Ampere", 300e9, "rdma", "rdma", 400 * GBIT_BYTES, 8, nodes=2)
AS_THE_LINE = ((1e3, Bounds.exact(1.0)), (1e9, Bounds.exact(1.0)))


def line(collective: str = "all_gather", **changes: object) -> MeasuredLine:
    """70 us for the 7 steps of 8 ranks, then 200 GB/s."""
    return MeasuredLine(collective, 8, 1, 70e-6, 200e9, AS_THE_LINE)._replace(**changes)


def call(kind: str = "all_gather", payload: float = 8e9, ranks: int = 8, nodes: int = 1, times: int = 1) -> Collective:
    return Collective("measured", kind, payload, ranks, nodes, ranks // nodes, times, "forward", True)  # type: ignore[arg-type]


def seconds(one: Collective, *lines: MeasuredLine, fabric: Fabric = PLAIN) -> Bounds:
    found = collective_seconds(one, fabric._replace(measured=lines))
    assert found is not None
    return found


def test_the_same_ranks() -> None:
    """Each of 8 sends 7/8 of 8 GB: 7e9 / 200e9 s and 70 us, three times."""
    assert seconds(call(times=3), line()) == pytest.approx(Bounds.exact(3 * (0.035 + 70e-6)))


def test_fewer_ranks_of_the_node_take_fewer_steps() -> None:
    """4 ranks: 3 of 7 steps, 3/4 of 8 GB."""
    assert seconds(call(ranks=4), line()).likely == pytest.approx(30e-6 + 6e9 / 200e9)


def test_between_two_sizes_the_factor_follows_the_logarithm() -> None:
    """1e3 bytes took twice the line, 1e5 bytes 1.5 times: 1e4 bytes 1.75 times; quartiles likewise. Beyond the ends the factor stays."""
    measured = line(beside=((1e3, Bounds(1.5, 2.0, 3.0)), (1e5, Bounds(1.0, 1.5, 2.0))))
    assert measured.seconds(1e4) == pytest.approx(Bounds(*(factor * (70e-6 + 1e4 / 200e9) for factor in (1.25, 1.75, 2.5))))
    assert measured.seconds(1.0).high == pytest.approx(3 * 70e-6) and measured.seconds(200e9).likely == pytest.approx(1.5 * (1 + 70e-6))


def test_other_collectives_stay_assumed() -> None:
    for kind in ("reduce_scatter", "all_to_all", "send", "all_reduce"):
        assert seconds(call(kind), line()) == seconds(call(kind))


def test_sums_in_a_switch_are_not_those_of_a_ring() -> None:
    """On Hopper switches add up from 5 ranks on: what 8 took says nothing of 4. On Ampere none does."""
    hopper = PLAIN._replace(architecture="Hopper", gpu_bytes_per_second=450e9)
    assert seconds(call("all_reduce", ranks=4), line("all_reduce"), fabric=hopper) == seconds(call("all_reduce", ranks=4), fabric=hopper)
    assert seconds(call("all_reduce"), line("all_reduce"), fabric=hopper).likely == pytest.approx(70e-6 + 14e9 / 200e9)
    assert seconds(call("all_reduce", ranks=4), line("all_reduce")).likely == pytest.approx(30e-6 + 12e9 / 200e9)


def test_each_pair_of_a_mesh_has_its_own_wire() -> None:
    """MI300X, 7 peers: 2 of 8 have 1 of 7 wires."""
    mesh = PLAIN._replace(architecture="CDNA3", gpu_bytes_per_second=448e9)
    assert seconds(call(ranks=2), line(), fabric=mesh).likely == pytest.approx(10e-6 + 4e9 / (200e9 / 7))


def test_a_rate_that_no_catalogue_has_is_known_by_its_record() -> None:
    unknown = PLAIN._replace(gpu_bytes_per_second=None)
    assert collective_seconds(call(), unknown) is None
    assert seconds(call(), line(), fabric=unknown).likely == pytest.approx(0.035 + 70e-6)


BETWEEN = line(ranks=16, nodes=2, latency_seconds=300e-6, bytes_per_second=25e9, line_gbit_s=400.0)


def test_between_nodes_the_same_ranks_on_the_same_line() -> None:
    """15/16 of 16 GB at 25 GB/s, and 300 us."""
    assert seconds(call(payload=16e9, ranks=16, nodes=2), BETWEEN).likely == pytest.approx(0.6 + 300e-6)


def test_on_another_line_the_share_counts() -> None:
    """25 of 50 GB/s: half of a line of 100 Gbit/s is 6.25 GB/s. Two nodes of one rank send half of 1 GB, an eighth of the line a GPU."""
    assert measured_share("all_gather", PLAIN._replace(measured=(BETWEEN,))) == Bounds.exact(0.5)
    thin = PLAIN._replace(node_bytes_per_second=100 * GBIT_BYTES, measured=(BETWEEN,))
    assert seconds(call(payload=16e9, ranks=16, nodes=2), BETWEEN, fabric=thin).likely == pytest.approx(15e9 / 6.25e9, rel=1e-3)
    apart = Collective("measured", "all_gather", 1e9, 2, 2, 1, 1, "forward", True)
    assert seconds(apart, BETWEEN).likely == pytest.approx(0.5e9 / (25e9 / 8), rel=1e-3)


def test_a_send_of_one_rank_says_nothing_of_a_node_whose_ranks_all_send() -> None:
    one = call("send", 1e9, 16, 2)
    assert seconds(one, BETWEEN._replace(collective="send")) == seconds(one)


def test_all_reduces_over_nodes_go_by_the_share_that_was_measured_also_where_switches_add_up() -> None:
    """30/16 of 16 GB at 25 GB/s on the line of the record; twice the time on half of it, latencies aside."""
    hopper = PLAIN._replace(architecture="Hopper", gpu_bytes_per_second=450e9)
    measured, one = BETWEEN._replace(collective="all_reduce"), call("all_reduce", 16e9, 16, 2)
    assert seconds(one, measured, fabric=hopper).likely == pytest.approx(1.2 + 300e-6)
    half = hopper._replace(node_bytes_per_second=200 * GBIT_BYTES)
    assert seconds(one, measured, fabric=half).likely == pytest.approx(2.4, rel=0.1)  # or a tree: 2 of 16 GB over 0.92 of the rate
