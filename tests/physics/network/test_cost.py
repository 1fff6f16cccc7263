"""Times against bus bandwidths that others published (busbw: bytes of a ring over the time of the call)."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullstep.hardware import Link, Node, find_card
from fullstep.hardware.links import Network
from fullstep.physics.network.collective import Collective, Kind, ring_bytes
from fullstep.physics.network.cost import collective_seconds
from fullstep.physics.network.fabric import Fabric
from fullstep.quantities import GBIT_BYTES

KIB, MIB, GIB = 2**10, 2**20, 2**30


def fabric(card: str, link: Link, gpus: int = 8, network: Network = "rdma", gbit_s: float | None = None) -> Fabric:
    found = find_card(card)
    both_ways = Node(card=found, gpus=gpus, link=link).link_bytes_per_second_bidirectional
    assert both_ways is not None
    node = None if gbit_s is None else gbit_s * GBIT_BYTES
    return Fabric(link, found.architecture, both_ways / 2, network, network, node, gpus)


H200, B200 = fabric("H200-SXM", "nvswitch", gbit_s=3200), fabric("B200", "nvswitch", gbit_s=3200)
H100 = fabric("H100-SXM", "nvswitch", gbit_s=3200)
A100, V100 = fabric("A100-SXM4-80GB", "nvswitch", gbit_s=800), fabric("V100-SXM2-32GB", "nvswitch", gbit_s=100)
V100_TCP = fabric("V100-SXM2-32GB", "nvswitch", network="tcp", gbit_s=100)
MI300X = fabric("MI300X", "nvswitch")


class Published(NamedTuple):
    what: str
    fabric: Fabric
    kind: Kind
    payload_bytes: int
    ranks: int
    nodes: int
    lowest_gb_s: float
    highest_gb_s: float
    """as published; the model's bounds have to reach both"""


TABLE = [
    Published("8 x A100, ml-engineering", A100, "all_reduce", 16 * GIB, 8, 1, 234.9, 234.9),
    Published("8 x H200 in the switch", H200, "all_reduce", 16 * GIB, 8, 1, 480.7, 482.3),
    Published("8 x H200, all-gather", H200, "all_gather", 16 * GIB, 8, 1, 361.4, 361.4),
    Published("8 x H200, reduce-scatter", H200, "reduce_scatter", 16 * GIB, 8, 1, 362.9, 362.9),
    Published("4 x H200, a ring", H200, "all_reduce", 16 * GIB, 4, 1, 363.3, 363.3),
    Published("8 x H100, nccl-tests 290", H100, "all_reduce", 16 * GIB, 8, 1, 476, 476),
    Published("8 x B200 in the switch", B200, "all_reduce", 16 * GIB, 8, 1, 838, 846),
    Published("8 x MI300X", MI300X, "all_reduce", 4 * GIB, 8, 1, 312.9, 312.9),
    Published("2 x MI300X, one wire", MI300X, "all_reduce", 4 * GIB, 2, 1, 47.7, 47.7),
    Published("2 x H100 PCIe, bridge, nccl 1161", fabric("H100-PCIE", "nvlink_bridge", 2), "all_reduce", GIB, 2, 1, 115, 116),
    Published("8 x RTX 5090, nccl 1639", fabric("RTX5090", "pcie_host"), "all_reduce", GIB, 8, 1, 28, 28),
    Published("4 x RTX 5090, nccl 1639", fabric("RTX5090", "pcie_host", 4), "all_reduce", GIB, 4, 1, 35, 35),
    Published("8 x H200, 256 MiB", H200, "all_reduce", 256 * MIB, 8, 1, 436, 442),
    Published("8 x H200, 64 MiB", H200, "all_reduce", 64 * MIB, 8, 1, 369, 370),
    Published("8 x H200, 16 MiB", H200, "all_reduce", 16 * MIB, 8, 1, 242, 256),
    Published("4 x 8 B200 over EFA, 16 GiB", B200, "all_reduce", 16 * GIB, 32, 4, 376.7, 376.7),
    Published("4 x 8 B200 over EFA, 1 GiB", B200, "all_reduce", GIB, 32, 4, 366, 366),
    Published("4 x 8 B200 over EFA, 128 MiB", B200, "all_reduce", 128 * MIB, 32, 4, 260.5, 260.5),
    Published("4 x 8 H200 over EFA, a ring", H200, "all_reduce", 16 * GIB, 32, 4, 364.9, 364.9),
    Published("2 x 8 H100, 8 x 400 Gbit/s, nccl 2409", H100, "all_reduce", 16 * GIB, 16, 2, 470, 470),
    Published("3 x 8 A100, HDR 4 x 200, nccl-tests 119", A100, "all_reduce", 8 * GIB, 24, 3, 84.8, 94),
    Published("2 x 8 A100, RoCE 8 x 100, nccl 495", A100, "all_reduce", 8 * GIB, 16, 2, 75, 75),
    Published("2 x 8 V100, EFA 100, nccl 235", V100, "all_reduce", GIB, 16, 2, 10, 10),
    Published("4 x 8 V100, TCP 100, nccl 450", V100_TCP, "all_reduce", GIB, 32, 4, 4, 6),
]


def busbw_gb_s(row: Published) -> tuple[float, float, float]:
    """Bandwidth as nccl-tests prints it: at the high, the likely and the low bound of the time [GB/s]."""
    one = Collective("", row.kind, row.payload_bytes, row.ranks, row.nodes, row.ranks // row.nodes, 1, "forward", False)
    seconds = collective_seconds(one, row.fabric)
    assert seconds is not None
    sent = ring_bytes(row.kind, row.payload_bytes, row.ranks)
    return sent / seconds.high / 1e9, sent / seconds.likely / 1e9, sent / seconds.low / 1e9


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.what)
def test_published_bandwidths_lie_within_the_bounds(row: Published) -> None:
    slowest, _, fastest = busbw_gb_s(row)
    assert slowest <= row.lowest_gb_s and row.highest_gb_s <= fastest


@pytest.mark.parametrize(
    ("used", "ranks", "nodes", "sweep"),
    [
        (H200, 8, 1, {32 * KIB: 3.15, 256 * KIB: 24.68, MIB: 74.57, 4 * MIB: 145.14, 16 * MIB: 255.9, 256 * MIB: 441.87, GIB: 465.91}),
        (B200, 32, 4, {32 * KIB: 0.65, 512 * KIB: 6.99, 64 * MIB: 197.77, 128 * MIB: 260.5, 512 * MIB: 309.91, 4 * GIB: 374.66}),
    ],
    ids=["8 x H200", "4 x 8 B200 over EFA"],
)
def test_short_messages_are_slow_as_a_published_sweep_has_it(used: Fabric, ranks: int, nodes: int, sweep: dict[int, float]) -> None:
    """stas00/ml-engineering @0cc3de5, network/benchmarks: each size within a factor of 1.5 of the bounds."""
    for size, measured in sweep.items():
        slowest, _, fastest = busbw_gb_s(Published("", used, "all_reduce", size, ranks, nodes, 0, 0))
        assert slowest / 1.5 <= measured <= fastest * 1.5, (size, measured, slowest, fastest)


@pytest.mark.parametrize(
    ("kind", "milliseconds"), [("all_reduce", (535, 535)), ("reduce_scatter", (575, 575)), ("all_gather", (433, 466)), ("send", (528, 535))]
)
def test_gloo_over_a_link_of_one_gbit(kind: Kind, milliseconds: tuple[float, float]) -> None:
    """64 MB between two hosts, as measured."""
    link = Fabric("", "", None, "gloo_tcp", "gloo_tcp", GBIT_BYTES, 1)
    seconds = collective_seconds(Collective("", kind, 64e6, 2, 2, 1, 1, "forward", False), link)
    assert seconds is not None
    assert seconds.low * 1e3 <= milliseconds[0] * 1.01 and milliseconds[1] <= seconds.high * 1e3 * 1.01


def test_fsdp_gains_nothing_from_the_switch() -> None:
    """NVLS speeds up all-reduce only: all-gathers see a quarter less."""
    gather = Published("", H200, "all_gather", 16 * GIB, 8, 1, 0, 0)
    assert busbw_gb_s(gather)[1] / busbw_gb_s(gather._replace(kind="all_reduce"))[1] == pytest.approx(361 / 482, rel=0.03)


def test_a_missing_network_is_no_number() -> None:
    alone = fabric("H100-SXM", "nvswitch")
    assert collective_seconds(Collective("", "all_gather", 1e9, 16, 2, 8, 1, "forward", True), alone) is None
    assert collective_seconds(Collective("", "all_gather", 1e9, 8, 1, 8, 1, "forward", True), alone) is not None


KINDS = st.sampled_from(["all_gather", "reduce_scatter", "all_reduce", "all_to_all", "send"])


@given(KINDS, st.integers(1, 8), st.integers(1, 8), st.floats(1, 1e11), st.floats(1, 3200))
def test_bounds_are_in_order_and_grow_with_the_message(kind: Kind, nodes: int, per_node: int, size: float, gbit_s: float) -> None:
    if nodes * per_node < 2:
        return
    used = H100._replace(node_bytes_per_second=gbit_s * GBIT_BYTES, network="tcp")
    one = Collective("", kind, size, nodes * per_node, nodes, per_node, 1, "forward", True)
    found, larger = collective_seconds(one, used), collective_seconds(one._replace(payload_bytes=2 * size), used)
    assert found is not None and larger is not None
    assert 0 < found.low <= found.likely <= found.high
    assert larger.likely >= found.likely
