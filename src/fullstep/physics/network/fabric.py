"""The links of a job's machine: what joins the GPUs of a node, what joins nodes, and what of it is not known."""

from __future__ import annotations

from typing import Literal, NamedTuple

from fullstep.hardware import Node
from fullstep.hardware.links import Network, Protocol, achieved_share, base_seconds, hop_seconds, mesh_share
from fullstep.job import Job
from fullstep.physics.network.collective import Collective

End = Literal[0, 1, 2]
"""of bounds on a time: low, likely, high"""
GBIT_BYTES = 1e9 / 8


class Fabric(NamedTuple):
    """Line rates in one direction. None: not known, or not there."""

    link: str
    """inside a node, as ``machine.link``"""
    architecture: str
    """of the card"""
    gpu_bytes_per_second: float | None
    """of one GPU to the rest of its node"""
    network: Network
    """between nodes"""
    network_at_best: Network
    """differs from ``network`` where the worksheet does not say whether it is RDMA"""
    node_bytes_per_second: float | None
    """of one node to all others"""
    gpus_per_node: int
    why_unknown: tuple[str, ...] = ()
    """what is missing, in words"""
    nodes: int = 1

    @property
    def node_gbit_s(self) -> float:
        return (self.node_bytes_per_second or 0.0) / GBIT_BYTES


class Lanes(NamedTuple):
    """What one collective of one protocol has to do with at one end of the bounds."""

    inside_bytes_per_second: float
    """per GPU"""
    between_bytes_per_second: float
    """per GPU, when all GPUs of a node send at once"""
    inside_hop_seconds: float
    between_hop_seconds: float
    base_seconds: float


def fabric_of(job: Job) -> Fabric:
    """The fabric of a job's machine. A network that is not known stays unknown, with the reason.

    Where ``machine.rdma`` is not stated, times run from what RDMA would do at best to what sockets do.

    Args:
        job: its machine

    Returns:
        line rates in one direction [B/s]
    """
    machine = job.machine
    why: list[str] = []
    both_ways: float | None = None
    if machine.gpus > 1:
        if machine.card is None:
            why.append("machine.gpu is not stated: what joins the GPUs of a node is not known")
        elif machine.link is not None:
            node = Node(card=machine.card, gpus=machine.gpus, link=machine.link)
            both_ways = node.link_bytes_per_second_bidirectional
            if both_ways is None:
                why.append(f"the rate of {machine.link} of {machine.card.key} is not in the catalogue")
    if machine.nodes > 1 and machine.network_gbit_s is None:
        why.append("machine.network_gbit_s is not stated: what joins the nodes is not known")
    return Fabric(
        link=machine.link or "",
        architecture=machine.card.architecture if machine.card is not None else "",
        gpu_bytes_per_second=None if both_ways is None else both_ways / 2,
        network="rdma" if machine.rdma else "tcp",
        network_at_best="tcp" if machine.rdma is False else "rdma",
        node_bytes_per_second=None if machine.network_gbit_s is None else machine.network_gbit_s * GBIT_BYTES,
        gpus_per_node=machine.gpus,
        why_unknown=tuple(why),
        nodes=machine.nodes,
    )


def missing_for(collective: Collective, fabric: Fabric) -> bool:
    """Whether the fabric does not say how fast a link is that this collective needs."""
    inside = collective.ranks_per_node > 1 and collective.nodes < collective.ranks and fabric.gpu_bytes_per_second is None
    return inside or (collective.nodes > 1 and fabric.node_bytes_per_second is None)


def network_at(fabric: Fabric, end: End) -> Network:
    """The network for one end of the bounds."""
    return fabric.network_at_best if end == 0 else fabric.network


def lanes(collective: Collective, fabric: Fabric, end: End, protocol: Protocol) -> Lanes:
    """Achieved rates and latencies for one collective at one end of the bounds, before what the protocol itself takes."""
    network, inside, inside_hop = network_at(fabric, end), float("inf"), 0.0
    if collective.ranks_per_node > 1 and fabric.gpu_bytes_per_second is not None:
        share = achieved_share(fabric.link, fabric.architecture, collective.kind)[2 - end]
        share *= mesh_share(fabric.link, fabric.architecture, collective.ranks_per_node)
        inside = share * fabric.gpu_bytes_per_second
        inside_hop = hop_seconds(fabric.link, protocol)[end]
    between, between_hop = float("inf"), 0.0
    if collective.nodes > 1 and fabric.node_bytes_per_second is not None:
        share = achieved_share(network, "", collective.kind, fabric.node_gbit_s)[2 - end]
        between = share * fabric.node_bytes_per_second / fabric.gpus_per_node
        between_hop = hop_seconds(network, protocol)[end]
    library = network if network == "gloo_tcp" else "nccl"
    return Lanes(inside, between, inside_hop, between_hop, base_seconds(library, protocol)[end])
