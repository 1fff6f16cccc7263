"""The network that one needs: solved by hand, and put back into the time that it was solved from."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullstep.job import Job
from fullstep.physics.network.collective import sent_bytes_per_gpu_per_step
from fullstep.physics.network.exposure import PhaseSeconds
from fullstep.physics.network.fabric import fabric_of
from fullstep.physics.network.required import (
    Crossing,
    allowed_seconds,
    required_bytes_per_second,
    required_from_measurement,
    required_network,
)
from fullstep.physics.network.traffic import step_collectives

Make = Callable[..., Job]
STEP = 16_384 / 5_762
"""2.84 s: 16,384 tokens at torchtitan's 5,762 tokens/s per H100"""
PARAMETERS = 8_030_261_248
VOLUME = 15 / 16 * PARAMETERS * 8
"""60.2 GB per node: everything gathered twice in bfloat16, reduced in float32, 2 nodes of 8"""


def test_eight_billion_on_two_nodes_needs_169_gbit_if_all_is_hidden() -> None:
    rate = required_bytes_per_second([Crossing(VOLUME, STEP)], 0.0)
    assert rate is not None
    assert rate * 8e-9 == pytest.approx(169, abs=0.5)


@pytest.mark.parametrize(("gbit_s", "seconds"), [(10, 53.5), (25, 21.4), (100, 5.4), (200, 2.7), (400, 1.3), (3200, 0.2)])
def test_pure_communication_at_90_percent(gbit_s: float, seconds: float) -> None:
    """The other way round: with no compute to hide behind, these line rates are what these times allow."""
    rate = required_bytes_per_second([Crossing(VOLUME, 0.0)], VOLUME / (0.9 * gbit_s / 8e-9))
    assert rate is not None and VOLUME / rate == pytest.approx(seconds, abs=0.05)


@given(st.lists(st.tuples(st.floats(1, 1e12), st.floats(0, 100)), min_size=1, max_size=6), st.floats(1e-3, 100))
def test_at_the_required_rate_exactly_the_allowed_time_is_exposed(phases: list[tuple[float, float]], allowed: float) -> None:
    crossings = [Crossing(*phase) for phase in phases]
    rate = required_bytes_per_second(crossings, allowed)
    assert rate
    assert sum(max(0.0, one.node_bytes / rate - one.window_seconds) for one in crossings) == pytest.approx(allowed, rel=1e-6)


def test_a_share_of_ten_percent() -> None:
    """2.7 s of compute and 0.3 s exposed are 3 s, of which 0.3 are 10 %."""
    assert allowed_seconds(2.7, 0.10) == pytest.approx(0.3)


def job_of(eight_billion: Make, **keys: object) -> Job:
    machine = {"machine__gpu": "H100-SXM", "machine__gpus": 8, "machine__nodes": 2, "machine__rdma": True}
    return eight_billion(**{"layout__strategy": "fsdp", "step__framework": "torchtitan", **machine, **keys})


def test_layouts_ask_for_less_the_less_they_send(eight_billion: Make) -> None:
    compute = PhaseSeconds(STEP / 3, STEP * 2 / 3)
    needs = {}
    for name, keys in {
        "fsdp": {},
        "kept": {"layout__reshard_after_forward": False},
        "gathered inside": {"layout__reshard_after_forward": 8},
        "hsdp": {"layout__strategy": "hsdp"},
    }.items():
        job = job_of(eight_billion, **keys)
        found = required_network(step_collectives(job), fabric_of(job), compute)
        assert found.gbit_s_per_node is not None
        assert found.gbit_s_per_node.low <= found.gbit_s_per_node.likely <= found.gbit_s_per_node.high
        needs[name] = found.gbit_s_per_node.likely
    assert needs["fsdp"] >= needs["kept"] == pytest.approx(needs["gathered inside"], rel=0.02)
    assert needs["hsdp"] == pytest.approx(needs["kept"], rel=0.05)  # both have 30 to 32 GB of gradients to hide behind backward alone
    assert needs["hsdp"] < needs["fsdp"]
    assert 130 < needs["fsdp"] < 260  # 191 by one window over everything (the doctest), at an achieved share of 0.8


def test_one_node_needs_no_network(eight_billion: Make) -> None:
    job = job_of(eight_billion, machine__nodes=1)
    found = required_network(step_collectives(job), fabric_of(job), PhaseSeconds(1, 2))
    assert found.gbit_s_per_node is not None and found.gbit_s_per_node.likely == 0


def test_where_the_node_itself_is_too_slow_no_network_is_enough(eight_billion: Make) -> None:
    """HSDP over two nodes of RTX 4090: the gathers over PCIe alone take longer than a short step allows."""
    job = job_of(eight_billion, layout__strategy="hsdp", machine__gpu="RTX4090")
    found = required_network(step_collectives(job), fabric_of(job), PhaseSeconds(0.1, 0.2))
    assert found.gbit_s_per_node is None and "inside the nodes" in found.why


def test_sockets_need_a_faster_line(eight_billion: Make) -> None:
    compute = PhaseSeconds(STEP / 3, STEP * 2 / 3)
    fast, slow = (job_of(eight_billion, machine__rdma=rdma) for rdma in (True, False))
    needs = [required_network(step_collectives(job), fabric_of(job), compute).gbit_s_per_node for job in (fast, slow)]
    assert needs[0] is not None and needs[1] is not None
    assert needs[1].likely == pytest.approx(2 * needs[0].likely)  # 0.4 of the line against 0.8


def test_what_a_measured_step_says_agrees_with_what_it_was_made_of(eight_billion: Make) -> None:
    """A step that exposes exactly 10 % asks for the line that it had."""
    node = sent_bytes_per_gpu_per_step(step_collectives(job_of(eight_billion))).between_nodes * 8
    found = required_from_measurement(node_bytes=node, line_gbit_s=200, step_seconds=3.0, measured_share=0.10, achieved=0.8)
    assert found == pytest.approx(200)


def test_more_exposed_than_the_bytes_take_shows_the_share_that_is_achieved() -> None:
    """60 GB at 100 Gbit/s need 4.8 s; 9.6 were exposed: half of the line. Halving what is exposed needs twice the line."""
    found = required_from_measurement(
        node_bytes=60e9, line_gbit_s=100, step_seconds=19.2, measured_share=0.5, achieved=0.8, exposed_share=1 / 3
    )
    assert found == pytest.approx(200)
