"""The network that one needs: solved by hand, and put back into the time that it was solved from."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fullstep.job import Job
from fullstep.physics.network.collective import sent_bytes_per_gpu_per_step
from fullstep.physics.network.exposure import PhaseSeconds, exposed_seconds
from fullstep.physics.network.fabric import fabric_of
from fullstep.physics.network.required import (
    allowed_seconds,
    required_from_measurement,
    required_network,
)
from fullstep.physics.network.traffic import step_collectives
from fullstep.quantities import GBIT_BYTES

Make = Callable[..., Job]
STEP = 16_384 / 5_762
"""2.84 s: 16,384 tokens at torchtitan's 5,762 tokens/s per H100"""


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
    assert needs["fsdp"] >= needs["kept"] == pytest.approx(needs["gathered inside"], rel=0.1)
    assert needs["hsdp"] == pytest.approx(needs["kept"], rel=0.2)  # both have 30 to 32 GB of gradients to hide behind backward alone
    assert needs["hsdp"] < needs["fsdp"]
    assert 150 < needs["fsdp"] < 500  # 60 GB behind 2.84 s at 0.8 of the line are 191; waiting for the slowest and for NCCL comes on top


@pytest.mark.parametrize("keys", [{}, {"machine__nodes": 16}, {"layout__strategy": "hsdp", "machine__nodes": 4}])
def test_at_the_required_rate_the_share_is_exposed(eight_billion: Make, keys: dict[str, object]) -> None:
    job, compute = job_of(eight_billion, **keys), PhaseSeconds(STEP / 3, STEP * 2 / 3)
    found = required_network(step_collectives(job), fabric_of(job), compute).gbit_s_per_node
    assert found is not None
    fabric = fabric_of(job)._replace(node_bytes_per_second=found.likely * GBIT_BYTES)
    exposed = exposed_seconds(step_collectives(job), fabric, compute)
    assert exposed is not None and exposed.likely / (exposed.likely + compute.total) == pytest.approx(0.10, abs=0.003)


def test_one_node_needs_no_network(eight_billion: Make) -> None:
    job = job_of(eight_billion, machine__nodes=1)
    found = required_network(step_collectives(job), fabric_of(job), PhaseSeconds(1, 2))
    assert found.gbit_s_per_node is not None and found.gbit_s_per_node.likely == 0


def test_where_the_node_itself_is_too_slow_no_network_is_enough(eight_billion: Make) -> None:
    """HSDP over two nodes of RTX 4090: the gathers over PCIe alone take longer than a short step allows."""
    job = job_of(eight_billion, layout__strategy="hsdp", machine__gpu="RTX4090")
    found = required_network(step_collectives(job), fabric_of(job), PhaseSeconds(0.1, 0.2))
    assert found.gbit_s_per_node is None and "no network is enough" in found.why


def test_sockets_need_a_faster_line(eight_billion: Make) -> None:
    compute = PhaseSeconds(STEP / 3, STEP * 2 / 3)
    fast, slow = (job_of(eight_billion, machine__rdma=rdma) for rdma in (True, False))
    needs = [required_network(step_collectives(job), fabric_of(job), compute).gbit_s_per_node for job in (fast, slow)]
    assert needs[0] is not None and needs[1] is not None
    assert needs[1].likely > 1.9 * needs[0].likely  # 0.4 of the line against 0.8, and longer latencies


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
