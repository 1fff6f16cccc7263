"""From a worksheet's machine to line rates, and what is not known."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fullstep.job import Job
from fullstep.physics.network.fabric import fabric_of

Make = Callable[..., Job]
TWO = {"machine__gpus": 8, "machine__nodes": 2}


def test_line_rates_in_one_direction(eight_billion: Make) -> None:
    found = fabric_of(eight_billion(machine__gpu="H100-SXM", machine__network_gbit_s=3200, machine__rdma=True, **TWO))
    assert (found.gpu_bytes_per_second, found.node_bytes_per_second, found.network) == (450e9, 400e9, "rdma")
    assert found.why_unknown == ()


def test_pcie_counts_its_lanes(eight_billion: Make) -> None:
    found = fabric_of(eight_billion(machine__gpu="RTX4060Ti-16GB", machine__gpus=4))
    assert found.gpu_bytes_per_second == pytest.approx(8 * 1.969e9)


def test_an_unknown_network_is_named(eight_billion: Make) -> None:
    found = fabric_of(eight_billion(machine__gpu="H100-SXM", **TWO))
    assert found.node_bytes_per_second is None
    assert found.why_unknown == ("machine.network_gbit_s is not stated: what joins the nodes is not known",)


def test_a_network_that_may_be_either_spans_both(eight_billion: Make) -> None:
    found = fabric_of(eight_billion(machine__gpu="H100-SXM", machine__network_gbit_s=100, **TWO))
    assert (found.network_at_best, found.network) == ("rdma", "tcp")


def test_no_card_no_rate(eight_billion: Make) -> None:
    found = fabric_of(eight_billion(machine__gpus=8))
    assert found.gpu_bytes_per_second is None and "machine.gpu" in found.why_unknown[0]
