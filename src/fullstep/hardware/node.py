"""A node: equal cards and what joins them."""

from __future__ import annotations

from dataclasses import dataclass

from fullstep.hardware.card import Card, Link
from fullstep.quantities import GB

_LANE_BYTES_PER_SECOND = {3: 0.985 * GB, 4: 1.969 * GB, 5: 3.938 * GB, 6: 7.563 * GB}
"""Of one PCIe lane and one direction, after line coding (PCI-SIG: 8, 16, 32 GT/s with 128b/130b; 64 GT/s with 1b/1b in 242/256 flits)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """``gpus`` equal cards in one machine."""

    card: Card
    gpus: int
    link: Link

    @property
    def link_bytes_per_second_bidirectional(self) -> float | None:
        """Peak rate between one GPU and the rest of the node, both directions together [B/s]; None: not known."""
        if self.link in ("nvswitch", "nvlink_bridge"):
            return self.card.link_bytes_per_second_bidirectional
        return pcie_bytes_per_second_bidirectional(self.card)


def default_link(card: Card, gpus: int) -> Link:
    """What joins ``gpus`` of these cards when nothing is said about it.

    - ``nvswitch``: cards soldered to a board with NVLink or xGMI between all of them (SXM, OAM, superchips);
    - ``nvlink_bridge``: cards for which a bridge exists, when one bridge joins exactly as many as there are;
    - ``pcie_p2p``: cards that the stock driver lets copy to one another over PCIe (data centre and workstation cards);
    - ``pcie_host``: the others (GeForce): every copy passes host memory.

    >>> from fullstep.hardware import find_card
    >>> [default_link(find_card(name), gpus) for name, gpus in (("H100-SXM", 8), ("A6000", 2), ("A6000", 4), ("RTX3090", 4))]
    ['nvswitch', 'nvlink_bridge', 'pcie_p2p', 'pcie_host']
    """
    if card.link == "nvlink_bridge" and (card.bridge_gpus is None or not 2 <= gpus <= card.bridge_gpus):
        return "pcie_p2p" if card.pcie_peer else "pcie_host"
    return card.link


def default_node(card: Card, gpus: int) -> Node:
    """A node of ``gpus`` such cards in the form in which they are usually sold.

    >>> from fullstep.hardware import find_card
    >>> default_node(find_card("H100-SXM"), 8).link_bytes_per_second_bidirectional
    900000000000.0
    """
    return Node(card=card, gpus=gpus, link=default_link(card, gpus))


def pcie_bytes_per_second_bidirectional(card: Card) -> float | None:
    """Peak rate of the card's own PCIe slot, both directions together [B/s]: 2 * lanes * rate of one lane. None: not known."""
    if card.pcie_generation is None:
        return None
    return 2 * card.pcie_lanes * _LANE_BYTES_PER_SECOND[card.pcie_generation]
