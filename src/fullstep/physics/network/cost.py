"""What a collective costs: latency of its steps, and bytes over achieved rates (the alpha-beta model), as ring, tree or in the switch."""

from __future__ import annotations

from functools import lru_cache
from math import ceil, log2

from fullstep.hardware.links import Protocol, achieved_in_switch, base_seconds, hop_seconds, protocol_share
from fullstep.physics.network.collective import Collective, ring_bytes, sent_bytes
from fullstep.physics.network.fabric import End, Fabric, Lanes, lanes, measured_seconds, measured_share, missing_for, network_at
from fullstep.quantities import Bounds

PROTOCOLS: tuple[Protocol, ...] = ("ll", "ll128", "simple")


def ring_seconds(steps: int, hop_seconds: float, sent_bytes: float, bytes_per_second: float) -> float:
    """A ring: ``t = steps * alpha + sent / B`` [s].

    All-gather and reduce-scatter of n ranks take n - 1 steps and send (n - 1) / n of the payload; all-reduce twice both.

    Example: 8 ranks gather 8 GB at 400 GB/s with 3 us a hop: ``7 * 3e-6 + 7e9 / 4e11`` = 17.5 ms.

    Args:
        steps: of the ring
        hop_seconds: alpha [s]
        sent_bytes: by each rank [bytes]
        bytes_per_second: achieved, per rank and direction [B/s]

    Returns:
        [s]

    Source:
        Thakur et al. 2005, Optimization of collective communication operations in MPICH, section 4

    >>> round(ring_seconds(7, 3e-6, 7e9, 4e11) * 1e3, 3)
    17.521
    """
    return steps * hop_seconds + sent_bytes / bytes_per_second


def tree_all_reduce_seconds(payload_bytes: float, nodes: int, ranks_per_node: int, lane: Lanes) -> float:
    """A double binary tree over nodes, chains inside them [s]::

        t = 2 log2(k) * alpha_between + 2 (q - 1) * alpha_inside + 2 S / (0.92 B)

    B: of one node to the others, or inside it where that is slower. Beats rings for short messages on many nodes.

    Example: 1 MB over 16 nodes of one rank, 14 us a hop, 10 GB/s: ``8 * 14e-6 + 2e6 / 9.2e9`` = 329 us.

    Source:
        Sanders et al. 2009, Two-tree algorithms; NCCL, src/graph/tuning.cc

    >>> lane = Lanes(float("inf"), 1e10, 0.0, 14e-6, 0.0)
    >>> round(tree_all_reduce_seconds(1e6, 16, 1, lane) * 1e6)
    329
    """
    steps = 2 * ceil(log2(nodes)) * lane.between_hop_seconds + 2 * (ranks_per_node - 1) * lane.inside_hop_seconds
    rate = min(lane.inside_bytes_per_second, lane.between_bytes_per_second * ranks_per_node)
    return steps + 2 * payload_bytes / (rate * protocol_share("tree"))


def hierarchical_all_reduce_seconds(payload_bytes: float, nodes: int, ranks_per_node: int, lane: Lanes) -> float:
    """Reduced and gathered inside each node, each GPU's part all-reduced between nodes; the two run at once, piece by piece [s]::

        t = max(2 (q - 1)/q S / B_inside,  2 (k - 1)/k (S / q) / B_between)  +  2 log2(k) * alpha_between

    Example: 8 GB on 2 nodes of 8, 400 GB/s inside, 50 GB/s per GPU between: the larger of 35 and 20 ms.

    Source:
        NCCL's NVLSTree; stas00/ml-engineering, network/README.md, for what of it crosses an adapter

    >>> lane = Lanes(400e9, 50e9, 0.0, 0.0, 0.0)
    >>> round(hierarchical_all_reduce_seconds(8e9, 2, 8, lane) * 1e3, 3)
    35.0
    """
    inside = ring_bytes("all_reduce", payload_bytes, ranks_per_node) / lane.inside_bytes_per_second
    between = ring_bytes("all_reduce", payload_bytes / ranks_per_node, nodes) / lane.between_bytes_per_second
    return max(inside, between) + 2 * ceil(log2(nodes)) * lane.between_hop_seconds


@lru_cache(maxsize=8192)
def collective_seconds(collective: Collective, fabric: Fabric) -> Bounds | None:
    """Time of all calls of a collective, nothing beside it [s]; None: a link that it needs is not known (``fabric.why_unknown``).

    What a record of such links has for it; else the quickest of what NCCL chooses from: rings, for all-reduce trees and reductions in the
    switch too, each in three protocols.

    Args:
        collective: payload, ranks, calls
        fabric: line rates

    Returns:
        low, likely, high [s]

    Source:
        NCCL, src/graph/tuning.cc; achieved shares in ``hardware/data/links.csv``

    Valid:
        published bus bandwidths of all-reduce lie within the bounds from 256 MiB on, those of 32 KiB to 128 MiB within a factor of 2;
        all GPUs of a node are taken to send at once; start of a kernel (20 to 30 us of the host) is hidden while the host runs ahead
    """
    measured = measured_seconds(collective, fabric) if collective.ranks > 1 else None
    if measured is not None:
        return Bounds(*(collective.times * end for end in measured))
    if missing_for(collective, fabric):
        return None
    if collective.ranks < 2:
        return Bounds.exact(0.0)
    ends: tuple[End, End, End] = (0, 1, 2)
    return Bounds(*(collective.times * _call_seconds(collective, fabric, end) for end in ends))


def _call_seconds(collective: Collective, fabric: Fabric, end: End) -> float:
    gloo = network_at(fabric, end) == "gloo_tcp"
    found = [_by_protocol(collective, fabric, end, protocol) for protocol in (PROTOCOLS[-1:] if gloo else PROTOCOLS)]
    if collective.kind == "all_reduce" and not gloo:
        found += _in_switch_seconds(collective, fabric, end)
    return min(found)


def _by_protocol(collective: Collective, fabric: Fabric, end: End, protocol: Protocol) -> float:
    lane = _slowed(lanes(collective, fabric, end, protocol), protocol_share(protocol))
    found = _flat_seconds(collective._replace(times=1, taking_part=1.0), lane)
    if collective.kind == "all_reduce" and collective.nodes > 1:
        found = min(found, tree_all_reduce_seconds(collective.payload_bytes, collective.nodes, collective.ranks_per_node, lane))
    return lane.base_seconds + found


def _slowed(lane: Lanes, share: float) -> Lanes:
    return lane._replace(
        inside_bytes_per_second=lane.inside_bytes_per_second * share, between_bytes_per_second=lane.between_bytes_per_second * share
    )


def _flat_seconds(one: Collective, lane: Lanes) -> float:
    """A flat ring, an all-to-all or a hop: bytes flow inside and between nodes at once, so the slower of the two counts."""
    sent = sent_bytes(one)
    if one.kind == "send":
        crosses = one.nodes > 1
        rate = lane.between_bytes_per_second if crosses else lane.inside_bytes_per_second
        hop = lane.between_hop_seconds if crosses else lane.inside_hop_seconds
        return ring_seconds(1, hop, one.payload_bytes, rate)
    turns = 2 if one.kind == "all_reduce" else 1
    between_steps = turns * (one.nodes - 1)
    inside_steps = turns * (one.ranks - 1) - between_steps
    if one.kind == "all_to_all":  # every pair at once
        inside_steps, between_steps = min(1, inside_steps), min(1, between_steps)
        inside_bytes = sent.inside_node
    else:  # a ring carries all of it over each of its edges
        inside_bytes = ring_bytes(one.kind, one.payload_bytes, one.ranks) if one.ranks_per_node > 1 else 0.0
    latency = inside_steps * lane.inside_hop_seconds + between_steps * lane.between_hop_seconds
    inside = inside_bytes / lane.inside_bytes_per_second
    return latency + max(inside, sent.between_nodes / lane.between_bytes_per_second)


def _in_switch_seconds(collective: Collective, fabric: Fabric, end: End) -> list[float]:
    """An all-reduce whose sums NVSwitch makes."""
    per_node, network = collective.ranks_per_node, network_at(fabric, end)
    inside = achieved_in_switch(fabric.link, fabric.architecture, per_node)
    if inside is None or fabric.gpu_bytes_per_second is None or (collective.nodes > 1 and measured_share("all_reduce", fabric) is not None):
        return []
    between, hop = float("inf"), 0.0
    if collective.nodes > 1:
        share = achieved_in_switch(network, fabric.architecture, per_node)
        if share is None or fabric.node_bytes_per_second is None:
            return []
        between, hop = share[2 - end] * fabric.node_bytes_per_second / fabric.gpus_per_node, hop_seconds(network, "simple")[end]
    base = base_seconds("nccl", "in_switch")[end]
    lane = Lanes(inside[2 - end] * fabric.gpu_bytes_per_second, between, 0.0, hop, base)
    return [base + hierarchical_all_reduce_seconds(collective.payload_bytes, collective.nodes, per_node, lane)]
