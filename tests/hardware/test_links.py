"""Every row of the table of links has bounds in order, evidence and a source, and every link of a worksheet is in it."""

from __future__ import annotations

import csv
from itertools import pairwise
from typing import get_args

import pytest

from fullstep.hardware import Link
from fullstep.hardware.catalogue import DATA
from fullstep.hardware.links import Network, Protocol, achieved_in_switch, achieved_share, hop_seconds, mesh_share


def rows() -> list[dict[str, str]]:
    with (DATA / "links.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_every_row_has_evidence_a_source_and_bounds_in_order() -> None:
    for row in rows():
        assert row["source"], row
        assert row["evidence"] in ("published", "measured", "assumed", "derived"), row
        assert 0 < float(row["low"]) <= float(row["likely"]) <= float(row["high"]), row


@pytest.mark.parametrize("link", [*get_args(Link), *get_args(Network)])
@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter", "all_reduce", "all_to_all", "send"])
def test_every_link_has_a_share(link: str, kind: str) -> None:
    found = achieved_share(link, "", kind, 10)
    assert 0 < found.low <= found.likely <= found.high < 1


@pytest.mark.parametrize("link", [*get_args(Link), "rdma", "tcp"])
def test_every_link_has_latencies(link: str) -> None:
    for protocol in get_args(Protocol):
        assert 0 < hop_seconds(link, protocol).low < 1e-3


def test_sockets_achieve_less_of_a_faster_line() -> None:
    shares = [achieved_share("tcp", "", "all_reduce", gbit_s).likely for gbit_s in (1, 10, 25, 100, 400)]
    assert shares == sorted(shares, reverse=True)


def test_the_switch_adds_on_hopper_from_five_and_on_blackwell_from_six() -> None:
    assert [achieved_in_switch("nvswitch", "Hopper", ranks) is not None for ranks in (4, 5)] == [False, True]
    assert [achieved_in_switch("nvswitch", "Blackwell Ultra", ranks) is not None for ranks in (5, 6)] == [False, True]


def test_a_mesh_uses_as_many_wires_as_it_has_others() -> None:
    assert [mesh_share("nvswitch", "CDNA3", ranks) for ranks in (2, 8)] == [pytest.approx(1 / 7), 1.0]


def test_a_faster_line_never_carries_less() -> None:
    rates = [0.5 * step for step in range(1, 1700)]
    for link in ("tcp", "rdma", "gloo_tcp"):
        for kind in ("all_reduce", "all_gather", "reduce_scatter", "send"):
            carried = [[end * rate for end in achieved_share(link, "", kind, rate)] for rate in rates if link != "gloo_tcp" or rate <= 10]
            falls = [pair for pair in pairwise(carried) if any(more < 0.999_999 * less for less, more in zip(*pair, strict=True))]
            assert falls == [], (link, kind)
