"""Which records of links stand for the links of a machine, and why others do not."""

from __future__ import annotations

from typing import Any

import pytest
from links_by_hand import link_by_hand
from tiny_jobs import LLAMA

from fullstep.calibration.links import LinkShelf, lines_of
from fullstep.calibration.shelf import Shelf
from fullstep.job import Job, complete, worksheet_from_mapping
from fullstep.ledger.link import LinkSample, MeasuredLink
from fullstep.physics.network.cost import collective_seconds
from fullstep.physics.network.fabric import fabric_of
from fullstep.physics.network.traffic import step_collectives
from fullstep.physics.timing.step import step_time
from fullstep.quantities import Bounds

TWO_NODES = {"gpu": "H100-SXM", "gpus": 8, "nodes": 2, "network_gbit_s": 400}
BETWEEN: dict[str, Any] = {"ranks": 16, "nodes": 2, "rate": 40e9, "latency": 300e-6}


def job(**machine: Any) -> Job:
    machine = machine or {"gpu": "H100-SXM", "gpus": 8}
    layout = {"strategy": "fsdp"} if machine.get("gpus", 1) > 1 else {}
    return complete(worksheet_from_mapping({"model": {"config": LLAMA}, "machine": machine, "layout": layout}))


def refused(link: MeasuredLink, of: Job, network_gbit_s: float | None = 400.0) -> str:
    found = LinkShelf([("a.json", link)], network_gbit_s).of(of)
    assert not found.lines and not found.used
    return found.refused[0][1]


def test_the_card_and_the_gpus_of_a_node_have_to_be_alike() -> None:
    found = LinkShelf([("a.json", link_by_hand())], None).of(job())
    assert found.used == (("a.json", "links inside a node of 8 x H100-SXM"),) and not found.refused
    assert [(each.collective, each.ranks, each.nodes, each.line_gbit_s) for each in found.lines] == [
        (name, 8, 1, None) for name in ("all_reduce", "all_gather", "reduce_scatter", "send")
    ]
    assert found.assumptions[0].key == "evidence.link.all_reduce" and found.assumptions[0].value == "70 us, 200 GB/s"


@pytest.mark.parametrize(
    ("link", "machine", "why"),
    [
        (link_by_hand("cpu"), {}, "it ran over gloo on processors, which says nothing of links between GPUs"),
        (link_by_hand(), {"gpu": "A100-SXM-80GB", "gpus": 8}, "it ran on H100-SXM, not on A100-SXM4-80GB"),
        (link_by_hand("NVIDIA Nobody"), {}, "its device, NVIDIA Nobody, is no card of the catalogue"),
        (link_by_hand(ranks=4), {}, "it ran on 4 GPUs a node, not on 8"),
        (link_by_hand(rate=1e17), {}, "more than nvswitch of H100-SXM carries (900 both ways)"),
        (link_by_hand(), {"gpu": "H100-SXM"}, "the worksheet has one GPU"),
        (link_by_hand(), {"gpus": 8}, "the worksheet names none"),
        (link_by_hand(), {"gpu": "H100-SXM", "gpus": 8, "link": "pcie_host"}, "by nvswitch, not by pcie_host"),
        (link_by_hand(**BETWEEN, network_gbit_s=400.0), {**TWO_NODES, "link": "pcie_host"}, "by nvswitch, not by pcie_host"),
        (link_by_hand(**BETWEEN), {}, "it ran on 2 nodes, not on 1"),
        (link_by_hand(**BETWEEN), {**TWO_NODES, "nodes": 4}, "it ran on 2 nodes, not on 4"),
        (link_by_hand(**BETWEEN), {"gpu": "H100-SXM", "gpus": 8, "nodes": 2}, "does not state machine.network_gbit_s"),
        (link_by_hand(**BETWEEN, network_gbit_s=200.0), TWO_NODES, "on a network of 200 Gbit/s a node, not of 400"),
        (link_by_hand(**BETWEEN), {**TWO_NODES, "network_gbit_s": 800}, "does not say its line rate"),
        (link_by_hand(**{**BETWEEN, "rate": 60e9}), TWO_NODES, "its nodes sent 480 Gbit/s, more than"),
        (link_by_hand(samples=link_by_hand().samples[:1]), {}, "its sizes are too few"),
    ],
)
def test_what_does_not_fit_says_why(link: MeasuredLink, machine: dict[str, Any], why: str) -> None:
    assert why in refused(link, job(**machine))


def test_inside_and_between_each_has_its_record_and_the_newest_counts() -> None:
    records = [
        ("old.json", link_by_hand()), ("new.json", link_by_hand(rate=300e9, made="2026-02-01T00:00:00+00:00")),
        ("between.json", link_by_hand(**BETWEEN, network_gbit_s=400.0)),
    ]  # fmt: skip
    found = LinkShelf(records, None).of(job(**TWO_NODES))
    assert [name for name, _ in found.used] == ["new.json", "between.json"]
    assert found.refused == (("old.json", "new.json is newer, of the same links"),)
    assert {(each.nodes, each.bytes_per_second, each.line_gbit_s) for each in found.lines} == {(1, 300e9, None), (2, 40e9, 400.0)}


def test_nodes_of_one_gpu_have_no_link_inside() -> None:
    one = {"gpu": "H100-SXM", "gpus": 1, "nodes": 2, "network_gbit_s": 400, "link": "pcie_host"}
    found = LinkShelf([("a.json", link_by_hand(ranks=2, nodes=2, rate=40e9, network_gbit_s=400.0))], None).of(job(**one))
    assert found.used == (("a.json", "links between 2 nodes of 1 x H100-SXM"),)


def test_quartiles_stand_beside_the_line() -> None:
    """Two sizes, so that the line goes through both medians; of four calls from 10 to 40 us the middle half lies from 17.5 to 32.5."""
    calls = (LinkSample("send", 1000, 2, (10e-6, 20e-6, 30e-6, 40e-6)), LinkSample("send", 10**9, 2, (1.0, 1.0)))
    (line,) = lines_of(link_by_hand(samples=calls), None)
    sent, factor = line.beside[0]
    assert sent == 1000 and factor == pytest.approx(Bounds(0.7, 1.0, 1.3)) and line.beside[1][1] == pytest.approx(Bounds.exact(1.0))


def test_a_job_with_measured_links_waits_as_they_say() -> None:
    """A tenth of the rate that is assumed: communication that could hide no longer does. What is computed stays."""
    written = job()
    judged = Shelf([], [("a.json", link_by_hand(rate=36e9))], written.worksheet).of(written)
    assert judged.job.from_records.used == (("a.json", "link"),) and judged.used[0].match.kind == "link"
    assert len(judged.job.assumptions) == len(written.assumptions) + 4
    plain, slow = step_time(written), step_time(judged.job)
    assert plain is not None and slow is not None
    assert slow.parts[:-1] == plain.parts[:-1] and slow.parts[-1].seconds.likely > plain.parts[-1].seconds.likely
    collectives = [each for each in step_collectives(written) if each.kind == "all_gather"]
    took = sum(one.times * (70e-6 + 7 / 8 * one.payload_bytes / 36e9) for one in collectives)
    found = [collective_seconds(one, fabric_of(judged.job)) for one in collectives]
    assert sum(each.likely for each in found if each is not None) == pytest.approx(took)
