"""What joins the GPUs of a node."""

from __future__ import annotations

import pytest

from fullstep.hardware import Link, Node, default_link, default_node, find_card


@pytest.mark.parametrize(
    ("name", "gpus", "link"),
    [
        ("H100-SXM", 8, "nvswitch"),
        ("H100-SXM", 1, "nvswitch"),
        ("H100-PCIE", 2, "nvlink_bridge"),
        ("H100-PCIE", 8, "pcie_p2p"),
        ("H200-NVL", 4, "nvlink_bridge"),
        ("H200-NVL", 8, "pcie_p2p"),
        ("L40S", 8, "pcie_p2p"),
        ("RTX4090", 2, "pcie_host"),
        ("RTX3090", 2, "nvlink_bridge"),
        ("RTX3090", 4, "pcie_host"),
        ("MI300X", 8, "nvswitch"),
    ],
)
def test_default_links(name: str, gpus: int, link: Link) -> None:
    assert default_link(find_card(name), gpus) == link


def test_link_rates() -> None:
    """900 GB/s of NVLink 4 both ways; PCIe 4.0 x16 carries 31.5 GB/s each way, x8 half of that (PCI-SIG)."""
    assert default_node(find_card("H100-SXM"), 8).link_bytes_per_second_bidirectional == 900e9
    assert default_node(find_card("RTX4090"), 2).link_bytes_per_second_bidirectional == pytest.approx(63.0e9, rel=0.001)
    assert default_node(find_card("RTX4060Ti-16GB"), 2).link_bytes_per_second_bidirectional == pytest.approx(31.5e9, rel=0.001)


def test_a_stated_link_outranks_the_default() -> None:
    node = Node(card=find_card("A6000"), gpus=2, link="pcie_p2p")
    assert node.link_bytes_per_second_bidirectional == pytest.approx(63.0e9, rel=0.001)
