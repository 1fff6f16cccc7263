"""The links of a job's machine: what joins the GPUs of a node, what joins nodes, and what of it is not known."""

from __future__ import annotations

from math import isclose
from typing import Literal, NamedTuple

from fullstep.hardware import Node
from fullstep.hardware.links import Network, Protocol, achieved_in_switch, achieved_share, base_seconds, hop_seconds, mesh_share
from fullstep.hardware.measured_line import MeasuredLine
from fullstep.job import Job
from fullstep.physics.network.collective import Collective, ring_bytes
from fullstep.quantities import GBIT_BYTES, Bounds

End = Literal[0, 1, 2]
"""of bounds on a time: low, likely, high"""


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
    measured: tuple[MeasuredLine, ...] = ()
    """what records of such links have, in the place of shares and latencies that are assumed"""

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
        measured=job.from_records.links,
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
        share = (measured_share(collective.kind, fabric) or achieved_share(network, "", collective.kind, fabric.node_gbit_s))[2 - end]
        between = share * fabric.node_bytes_per_second / fabric.gpus_per_node
        between_hop = hop_seconds(network, protocol)[end]
    library = network if network == "gloo_tcp" else "nccl"
    return Lanes(inside, between, inside_hop, between_hop, base_seconds(library, protocol)[end])


def measured_seconds(collective: Collective, fabric: Fabric) -> Bounds | None:
    """Of one call, by a record of such links [s]; None: there is none for it.

    Inside a node, of as many ranks or fewer: latency by the steps of the ring. Whether switches add up or not has to be alike. Between
    nodes, of the same ranks on the same line rate; a send there has the line for itself in the record, and shares it in a step.
    """
    inside = collective.nodes == 1
    for line in fabric.measured:
        if line.collective != collective.kind or (line.nodes == 1) is not inside:
            continue
        sent = ring_bytes(collective.kind, collective.payload_bytes, collective.ranks)
        if not inside:
            is_alike = (line.ranks, line.nodes) == (collective.ranks, collective.nodes) and line.collective != "send"
            return line.seconds(sent) if is_alike and isclose(line.line_gbit_s or 0.0, fabric.node_gbit_s) else None
        in_switch = [collective.kind == "all_reduce" and _adds_up(fabric, ranks) for ranks in (collective.ranks, line.ranks)]
        if in_switch[0] is not in_switch[1]:
            return None
        steps_share = 1.0 if collective.kind == "send" else (collective.ranks - 1) / (line.ranks - 1)
        here, there = (mesh_share(fabric.link, fabric.architecture, ranks) for ranks in (collective.ranks, line.ranks))
        return line.seconds(sent, steps_share, here / there)
    return None


def measured_share(kind: str, fabric: Fabric) -> Bounds | None:
    """Of the line rate between nodes, that long messages reached in a record; None: there is none. A send there was one of a whole node."""
    for line in fabric.measured:
        share = line.achieved_share
        if line.collective == kind and share is not None and (kind != "send" or line.ranks_per_node == 1):
            low, likely, high = line.beside[-1][1]
            return Bounds(share / high, share / likely, share / low)
    return None


def _adds_up(fabric: Fabric, ranks: int) -> bool:
    return achieved_in_switch(fabric.link, fabric.architecture, ranks) is not None
