"""Time and traffic beside memory: what a pilot measured outranks what the formulas say."""

from __future__ import annotations

from typing import Any

import pytest

from fullstep.api.answer import answer_of
from fullstep.hardware.links import achieved_share
from fullstep.job import Job, complete, worksheet_from_mapping
from fullstep.ledger import Timing
from fullstep.physics.network.required import required_from_measurement

NETWORK = {"gpu": "H100-SXM", "gpus": 8, "nodes": 2, "network_gbit_s": 100, "rdma": True}


def job(**sections: Any) -> Job:
    return complete(worksheet_from_mapping({"model": {"name": "meta-llama/Llama-3.1-8B"}, "machine": NETWORK, **sections}))


def timing(**sections: Any) -> Timing:
    found = answer_of(job(**sections)).timing
    assert found is not None
    return found


def test_a_measured_step_outranks_and_its_rates_follow() -> None:
    told, measured = timing().step, timing(measured={"step_seconds": 3.0}, data={"steps": 100})
    assert told is not None and measured.step is not None and measured.run is not None
    assert measured.step.evidence == "measured" and measured.step.seconds == (3.0, 3.0, 3.0)
    assert measured.step.tokens_per_second_per_gpu.likely == pytest.approx(2048 / 3.0)
    assert measured.run.seconds.likely == pytest.approx(300)
    assert measured.step.parts == ()


def test_a_measured_share_says_which_network_is_needed() -> None:
    pilot = {"step_seconds": 6.0, "exposed_communication_fraction": 0.5}
    found = timing(measured=pilot).traffic
    assert found is not None and found.evidence == "measured" and found.required_gbit_s_per_node is not None
    want = required_from_measurement(
        node_bytes=8 * found.between_nodes_bytes, line_gbit_s=100, step_seconds=6.0, measured_share=0.5,
        achieved=achieved_share("rdma", "", "all_gather", 100).likely,
    )  # fmt: skip
    assert want is not None and found.required_gbit_s_per_node.low <= want <= found.required_gbit_s_per_node.high


def test_without_a_network_the_step_is_open_and_the_rate_is_named() -> None:
    unknown = timing(machine={"gpu": "H100-SXM", "gpus": 8, "nodes": 2}, batch={"sequence_tokens": 8192, "micro_batch": 2})
    assert unknown.step is None and unknown.traffic is not None
    assert dict(unknown.open)["step"] == "machine.network_gbit_s is not stated: what joins the nodes is not known"
    assert unknown.traffic.required_gbit_s_per_node is not None and unknown.traffic.required_gbit_s_per_node.likely > 0


def test_a_pilot_on_a_network_that_is_not_stated_says_its_time() -> None:
    """The formulas cannot say it; what nobody measured of it stays open."""
    found = timing(machine={"gpu": "H100-SXM", "gpus": 8, "nodes": 2}, measured={"step_seconds": 2.0}, data={"steps": 10})
    assert found.step is not None and found.run is not None
    assert found.step.seconds.likely == 2 and found.run.seconds.likely == pytest.approx(20)
    assert found.step.exposed_communication_fraction is None and found.step.bound_by is None


def test_flop_by_component_are_those_of_the_formula() -> None:
    """2 per weight and token, of two micro-batches."""
    batch = {"sequence_tokens": 4096, "accumulation": 2}
    flop = {(part.what, part.phase): part.flop for part in timing(batch=batch).flop}
    assert flop["feed forward", "forward"] == 2 * 4096 * 2 * 32 * 3 * 4096 * 14336


def test_a_smaller_share_asks_for_a_faster_network() -> None:
    small, large = (
        answer_of(job(batch={"sequence_tokens": 4096, "micro_batch": 4}, machine={**NETWORK, "network_gbit_s": 400}), share).timing
        for share in (0.1, 0.2)
    )
    assert small is not None and small.traffic is not None and small.traffic.required_gbit_s_per_node is not None
    assert large is not None and large.traffic is not None and large.traffic.required_gbit_s_per_node is not None
    assert small.traffic.required_gbit_s_per_node.likely > 1.3 * large.traffic.required_gbit_s_per_node.likely


def test_a_pilot_faster_than_the_card_is_doubted() -> None:
    found = answer_of(job(measured={"step_seconds": 0.01}))
    assert "F300" in [code for code, _ in found.warnings]
    assert found.measured["step_seconds"].estimated is not None and found.measured["step_seconds"].estimated.likely > 0.1


def test_a_measured_share_needs_the_time_it_is_a_share_of() -> None:
    pilot = answer_of(job(measured={"exposed_communication_fraction": 0.5}))
    assert pilot.timing is not None and pilot.timing.step == timing().step
    assert any("step_seconds" in text for code, text in pilot.warnings if code == "F001")


@pytest.mark.parametrize("share", [0.999, 1.0])
def test_no_network_is_enough_where_nearly_all_of_a_measured_step_waits(share: float) -> None:
    pilot = {"step_seconds": 2.0, "exposed_communication_fraction": share}
    found = timing(measured=pilot, machine={**NETWORK, "network_gbit_s": 400}).traffic
    assert found is not None and found.evidence == "measured"
    assert found.required_gbit_s_per_node is None and "are not enough" in found.why_no_rate
