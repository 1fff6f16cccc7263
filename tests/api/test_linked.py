"""What a link is asked for, what is refused before any process starts, and what the network model says beside it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fullstep.api import link, linked
from fullstep.api.linked import assumed_beside
from fullstep.errors import InputError
from fullstep.hardware.links import base_seconds, hop_seconds
from fullstep.lab.link import Wanted
from fullstep.lab.ranks.nodes import Nodes
from fullstep.ledger.link import LINK_COLLECTIVES, LinkSample, MeasuredLink

SIZES = (4096, 2**20, 2**28)


def measured(device: str, ranks: int) -> MeasuredLink:
    samples = tuple(LinkSample(name, size, ranks, (1.0,)) for name in LINK_COLLECTIVES for size in SIZES)
    return MeasuredLink(
        made="2026-01-01T00:00:00+00:00", device=device, backend="nccl", ranks=ranks, processors=8, iterations=1, warm_up=5,
        samples=samples, seconds=1.0,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def wanted(monkeypatch: pytest.MonkeyPatch) -> list[Wanted]:
    """What the lab is asked for."""
    found: list[Wanted] = []

    def told(wanted: Wanted, _progress: Any) -> MeasuredLink:
        found.append(wanted)
        return measured("cpu" if wanted.device == "cpu" else "NVIDIA H100 80GB HBM3", wanted.ranks)

    monkeypatch.setattr(linked, "measure_link", told)
    monkeypatch.setattr(linked, "require_libraries", lambda _: (("torch", "2.13"), ("peft", "0.19")))
    return found


def test_what_the_lab_is_asked_for(wanted: list[Wanted], monkeypatch: pytest.MonkeyPatch) -> None:
    link(cpu=3, sizes_bytes=[5000, 100], iterations=7, silent_seconds=9.0)
    monkeypatch.setattr(linked, "gpus_that_torch_sees", lambda _: 8)
    link(max_bytes=20_000)
    first, second = wanted
    assert (first.device, first.ranks, first.sizes_bytes, first.iterations, first.silent_seconds) == ("cpu", 3, (96, 4992), 7, 9.0)
    assert first.versions == (("torch", "2.13"),)
    assert (second.device, second.ranks, second.sizes_bytes) == ("cuda", 8, (4096, 16384))


def test_what_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="--cpu: found 1; allowed: at least 2: a link has two ends"):
        link(cpu=1)
    with pytest.raises(InputError, match="--iterations: found 0"):
        link(cpu=2, iterations=0)
    monkeypatch.setattr(linked, "gpus_that_torch_sees", lambda _: 1)
    with pytest.raises(InputError, match=r"torch sees one GPU here; allowed: at least 2.* --cpu 2 measures two ranks"):
        link()
    with pytest.raises(InputError, match=r"--iterations: found 0[^@]*--network-gbit-s: found nan"):
        link(cpu=2, iterations=0, network_gbit_s=float("nan"))


def test_one_rank_of_each_of_two_nodes_is_a_link(wanted: list[Wanted]) -> None:
    nodes = Nodes(2, 0, "10.0.0.1")
    link(cpu=1, nodes=nodes)
    assert (wanted[0].ranks, wanted[0].nodes, wanted[0].sizes_bytes[0]) == (1, nodes, 4096)


def test_another_node_tells_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linked, "measure_link", lambda *_: None)
    assert link(cpu=1, nodes=Nodes(2, 1, "10.0.0.1")) is None


def test_the_model_takes_a_known_card_for_what_it_is() -> None:
    """H100 SXM: 450 GB/s in one direction, of which all-gathers of whole buffers achieve 0.805 and all-reduces in the switch 1.06."""
    assumed, of = assumed_beside(measured("NVIDIA H100 80GB HBM3", 8))
    assert of == "8 x H100-SXM by nvswitch, 450 GB/s a GPU and direction"
    reduce, gather, *_ = assumed
    assert (reduce.collective, gather.collective) == ("all_reduce", "all_gather")
    assert gather.latency_seconds.likely == pytest.approx(6.6e-6 + 7 * 0.6e-6)
    assert [size for size, _ in gather.seconds] == list(SIZES)
    assert gather.seconds[-1][1].likely == pytest.approx(8.4e-6 + 7 * 3.4e-6 + 7 / 8 * 2**28 / (0.805 * 450e9))
    assert reduce.seconds[-1][1].likely == pytest.approx(50e-6 + 2 * 7 / 8 * 2**28 / (1.06 * 450e9))
    assert gather.fit is not None and reduce.fit is not None
    assert 0.9 * 0.805 * 450e9 < gather.fit.bytes_per_second < 0.805 * 450e9 < reduce.fit.bytes_per_second


def test_between_nodes_the_line_rate_has_to_be_stated() -> None:
    """16 GPUs on 2 nodes, 400 Gbit/s each: the other node's half of a gathered buffer comes at the line rate at best."""
    two_nodes = replace(measured("NVIDIA H100 80GB HBM3", 16), nodes=2)
    assert assumed_beside(two_nodes)[0] == ()
    assumed, of = assumed_beside(two_nodes, 400.0)
    assert of == "8 x H100-SXM by nvswitch, 450 GB/s a GPU and direction; 2 nodes by 400 Gbit/s, from sockets to RDMA"
    gather = next(each for each in assumed if each.collective == "all_gather")
    assert gather.seconds[-1][1].low > 2**27 / (400e9 / 8)
    inside = next(each for each in assumed_beside(measured("NVIDIA H100 80GB HBM3", 8))[0] if each.collective == "all_gather")
    assert gather.seconds[-1][1].likely > 3 * inside.seconds[-1][1].likely


def test_of_gloo_only_latencies_are_known() -> None:
    """Of 4 ranks: the call, and 3 hops of a ring; an all-reduce goes up and down a tree of two floors."""
    assumed, of = assumed_beside(measured("cpu", 4))
    assert "no line rate" in of
    by_name = {each.collective: each for each in assumed}
    base, hop = base_seconds("gloo_tcp", "simple").likely, hop_seconds("gloo_tcp", "simple").likely
    assert by_name["all_reduce"].latency_seconds.likely == pytest.approx(base + 4 * hop)
    assert by_name["all_gather"].latency_seconds.likely == pytest.approx(base + 3 * hop)
    assert by_name["send"].latency_seconds.likely == pytest.approx(base + hop)
    assert all(each.fit is None and each.seconds == () for each in assumed)


def test_a_card_that_nobody_knows_has_no_assumption() -> None:
    assumed, of = assumed_beside(measured("Somebody's GPU", 2))
    assert (assumed, of) == ((), 'no card goes by the name "Somebody\'s GPU" in the catalogue')
