"""One collective operation of a step, who takes part in it, and what each GPU sends for it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from math import ceil, lcm
from typing import Literal, NamedTuple

Kind = Literal["all_gather", "reduce_scatter", "all_reduce", "all_to_all", "send"]
Phase = Literal["forward", "backward", "after_backward"]


class Collective(NamedTuple):
    """Equal calls of one operation, counted over one optimizer step of the worst rank."""

    what: str
    """in words, for example "gather weights" """
    kind: Kind
    payload_bytes: float
    """full size of one call: what a gather ends with, a reduction starts with, one rank hands out in an all-to-all; one message"""
    ranks: int
    """how many take part; for ``send`` the GPUs of a chain along which one call is one hop"""
    nodes: int
    """how many nodes they span"""
    ranks_per_node: int
    times: int
    """calls per optimizer step"""
    phase: Phase
    overlaps: bool
    """the library runs it beside compute"""
    window: float = 1.0
    """share of the phase's compute beside which it can run: 1 / accumulation where only the last micro-batch reduces"""
    crossing: float = 1.0
    """of a ``send`` between nodes: the share of a node's GPUs that make it; the others send inside"""
    taking_part: float = 1.0
    """share of the GPUs that send at all: bytes are a mean over all of them, time is that of those"""


class Group(NamedTuple):
    """Ranks that take part together, and where they sit."""

    ranks: int
    nodes: int
    ranks_per_node: int


class SentBytes(NamedTuple):
    """Bytes that one GPU sends per optimizer step. Times the GPUs of a node, ``between_nodes`` is what the node sends."""

    inside_node: float
    between_nodes: float


@lru_cache(maxsize=4096)
def spread(ranks: int, stride: int, gpus_per_node: int) -> Group:
    """Where ``ranks`` processes sit that are ``stride`` apart, nodes being filled one after another. Of several such groups, the widest.

    ::

        nodes = ranks * stride / gpus_per_node     (stride <= gpus_per_node, all of it divisible), else counted

    Example: 8 GPUs a node. 16 neighbours span 2 nodes, 8 in each; 2 that are 8 apart span 2, one in each.

    Args:
        ranks: of one group
        stride: distance of neighbours in the order of ranks
        gpus_per_node: of each node

    Returns:
        ranks, nodes, and the most ranks of one node

    Source:
        torch.distributed.device_mesh (innermost dimension first); Megatron-LM, order tp-cp-ep-dp-pp

    >>> spread(16, 1, 8), spread(2, 8, 8), spread(4, 2, 8)
    (Group(ranks=16, nodes=2, ranks_per_node=8), Group(ranks=2, nodes=2, ranks_per_node=1), Group(ranks=4, nodes=1, ranks_per_node=4))
    """
    width = ranks * stride
    if gpus_per_node % width == 0:
        nodes = 1
    elif width % gpus_per_node == 0 and (gpus_per_node % stride == 0 or stride % gpus_per_node == 0):
        nodes = min(ranks, width // gpus_per_node)
    else:
        starts = range(0, lcm(width, gpus_per_node), width)
        firsts = (start + offset for start in starts for offset in range(stride))
        nodes = max(len({(first + stride * member) // gpus_per_node for member in range(ranks)}) for first in firsts)
    return Group(ranks, nodes, ceil(ranks / nodes))


def ring_bytes(kind: Kind, payload_bytes: float, ranks: int) -> float:
    """What each rank sends on a flat ring [bytes]; S is the payload, n the ranks.

    ::

        all_gather, reduce_scatter, all_to_all     (n - 1) / n * S
        all_reduce                                 2 * (n - 1) / n * S
        send                                       S

    Example: 16 ranks gather 16 GB: each sends ``15 / 16 * 16 = 15`` GB.

    Args:
        kind: of the collective
        payload_bytes: S [bytes]
        ranks: n

    Returns:
        [bytes] per rank

    Source:
        NVIDIA nccl-tests, PERFORMANCE.md; counted at the boundary of hosts within 0.4 %

    Valid:
        rings; NCCL's trees and in-switch reductions send other amounts, which is a matter of cost (see ``cost``)

    >>> ring_bytes("all_reduce", 16.0, 16), ring_bytes("all_gather", 16.0, 1)
    (30.0, 0.0)
    """
    if ranks < 2:
        return 0.0
    if kind == "send":
        return payload_bytes
    return (2 if kind == "all_reduce" else 1) * (ranks - 1) / ranks * payload_bytes


def sent_bytes(collective: Collective) -> SentBytes:
    """What one GPU sends for all calls of one collective [bytes], the load of crossing nodes spread over the GPUs of a node.

    A flat ring over k nodes crosses between nodes at k of its n edges, so each GPU's share of that is k / n. In an all-to-all of n ranks,
    q of them on a node, (n - q) / n of the payload leave the node. A chain of ``ranks`` GPUs has ``ranks - 1`` hops, each with its sender.

    Example: 16 ranks on 2 nodes gather 16 GB: 15 GB sent per GPU, ``15 * 2 / 16 = 1.875`` of them between nodes; 8 GPUs: 15 GB a node.

    >>> sent_bytes(Collective("gather weights", "all_gather", 16.0, 16, 2, 8, 1, "forward", True))
    SentBytes(inside_node=13.125, between_nodes=1.875)
    """
    size, ranks, nodes = collective.payload_bytes, collective.ranks, collective.nodes
    total = ring_bytes(collective.kind, size, ranks) * collective.times * collective.taking_part
    if collective.kind == "send":
        total /= max(1, ranks - 1)
        between = total * collective.crossing if nodes > 1 else 0.0
        return SentBytes(total - between, between)
    if nodes < 2:
        return SentBytes(total, 0.0)
    if collective.kind == "all_to_all":
        between = size * (ranks - collective.ranks_per_node) / ranks * collective.times
    else:
        between = total * nodes / ranks
    return SentBytes(total - between, between)


def sent_bytes_per_gpu_per_step(collectives: Iterable[Collective]) -> SentBytes:
    """What one GPU sends per optimizer step [bytes], inside its node and between nodes: the sum over the collectives.

    >>> two = Collective("reduce gradients", "all_reduce", 8.0, 2, 2, 1, 3, "backward", True)
    >>> sent_bytes_per_gpu_per_step([two, two._replace(nodes=1)])
    SentBytes(inside_node=24.0, between_nodes=24.0)
    """
    found = [sent_bytes(collective) for collective in collectives]
    return SentBytes(sum(one.inside_node for one in found), sum(one.between_nodes for one in found))
