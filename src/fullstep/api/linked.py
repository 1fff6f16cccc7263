"""Links between ranks, of this machine or of several nodes: what was measured, and what the network model assumes of the same ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from typing import NamedTuple

from fullstep.api.devices import gpus_that_torch_sees
from fullstep.errors import Fault, InputError
from fullstep.hardware import Node, cards_named, default_node
from fullstep.lab.libraries import require_libraries
from fullstep.lab.link import Wanted, measure_link, notes_of, sizes_of
from fullstep.lab.ranks.nodes import ONE_NODE, Nodes
from fullstep.ledger.link import LINK_COLLECTIVES, AssumedLink, LinkCollective, MeasuredLink, bus_factor, fitted
from fullstep.physics.network.collective import Collective
from fullstep.physics.network.cost import collective_seconds
from fullstep.physics.network.fabric import Fabric
from fullstep.quantities import GBIT_BYTES

Progress = Callable[[str], None]
ITERATIONS = 20
"""as nccl-tests"""
SILENT_SECONDS = 600.0
_NO_RATE = "no line rate: what ranks on processors exchange passes this machine's memory, so latencies alone are assumed"
_GLOO = Fabric("", "", None, "gloo_tcp", "gloo_tcp", GBIT_BYTES, 1)
"""each rank a node of its own; the rate makes no difference to a call without bytes"""


class Linked(NamedTuple):
    """A measurement, and what was assumed."""

    measured: MeasuredLink
    assumed: tuple[AssumedLink, ...]
    """in the order of the collectives; empty: the model knows nothing of this machine"""
    assumed_of: str
    """what the model took this machine for, or why it knows nothing of it"""


def link(
    *, cpu: int | None = None, sizes_bytes: Sequence[int] | None = None, max_bytes: int | None = None, iterations: int = ITERATIONS,
    silent_seconds: float = SILENT_SECONDS, progress: Progress = lambda _: None, nodes: Nodes = ONE_NODE,
    network_gbit_s: float | None = None,
) -> Linked | None:  # fmt: skip
    """Times all-reduce, all-gather, reduce-scatter and sends between real ranks, by message size.

    Args:
        cpu: ranks on processors (gloo); None: one on every GPU that torch sees (NCCL)
        sizes_bytes: of the messages; None: from 4 KiB on, four times as much again and again
        max_bytes: the largest of these; None: 16 MiB on processors, 1 GiB on GPUs
        iterations: timed calls of each size
        silent_seconds: without a sign of life, after which a rank counts as hanging
        progress: is told the stages as they come
        nodes: on each of which the same is called
        network_gbit_s: line rate of a node and direction, of which the model assumes a share; None: it assumes nothing between nodes

    Returns:
        None: this is not the first node, which tells of all

    Raises:
        InputError: an argument is at fault, or there are not two ranks
        LabError: a process died or hung
    """
    faults = [] if iterations >= 1 else [Fault("--iterations", f"found {iterations}", "at least 1")]
    if network_gbit_s is not None and not 0 < network_gbit_s < inf:
        faults.append(Fault("--network-gbit-s", f"found {network_gbit_s:g}", "more than 0"))
    if faults:
        raise InputError(*faults)
    versions = tuple((name, version) for name, version in require_libraries("link") if name == "torch")
    device, ranks = ("cpu", cpu) if cpu is not None else ("cuda", gpus_that_torch_sees("link"))
    if ranks * nodes.total < 2 or ranks < 1:
        found = f"found {cpu}" if cpu is not None else "torch sees one GPU here"
        remedy = "" if cpu is not None else "--cpu 2 measures two ranks on processors."
        raise InputError(Fault("fullstep link" if cpu is None else "--cpu", found, "at least 2: a link has two ends", remedy))
    sizes = sizes_of(device, ranks, sizes_bytes, max_bytes, nodes.total)
    wanted = Wanted(
        device=device, ranks=ranks, sizes_bytes=sizes, iterations=iterations, silent_seconds=silent_seconds,
        notes=notes_of(device, ranks, nodes.total), versions=versions, nodes=nodes,
    )  # fmt: skip
    measured = measure_link(wanted, progress)
    if measured is None:
        return None
    stated = replace(measured, network_gbit_s=network_gbit_s if measured.nodes > 1 else None)
    return Linked(stated, *assumed_beside(stated, network_gbit_s))


def assumed_beside(measured: MeasuredLink, network_gbit_s: float | None = None) -> tuple[tuple[AssumedLink, ...], str]:
    """What the network model says of the collectives that were measured, and of what.

    Args:
        measured: ranks, device and sizes of it count, no time
        network_gbit_s: line rate of a node and direction; None: not known
    """
    collectives = [name for name in LINK_COLLECTIVES if measured.of(name)]
    if measured.device == "cpu":
        return tuple(_assumed(name, measured, _GLOO) for name in collectives), f"gloo over sockets; {_NO_RATE}"
    cards = cards_named(measured.device)
    if len(cards) != 1:
        return (), f'{"no card goes" if not cards else f"{len(cards)} cards go"} by the name "{measured.device}" in the catalogue'
    node = default_node(cards[0], measured.ranks // measured.nodes)
    rate = node.link_bytes_per_second_bidirectional
    if rate is None:
        return (), f"the rate of {node.link} of {node.card.key} is not in the catalogue"
    words = f"{node.gpus} x {node.card.key} by {node.link}, {rate / 2e9:,.0f} GB/s a GPU and direction"
    if measured.nodes > 1 and network_gbit_s is None:
        return (), f"nodes of {words}; what joins them is not known: --network-gbit-s states its line rate"
    between = f"; {measured.nodes} nodes by {network_gbit_s:g} Gbit/s, from sockets to RDMA" if measured.nodes > 1 else ""
    return tuple(_assumed(name, measured, _fabric(node, rate / 2, network_gbit_s)) for name in collectives), words + between


def _fabric(node: Node, bytes_per_second: float, network_gbit_s: float | None) -> Fabric:
    """As of a worksheet that does not say whether the network is RDMA."""
    between = None if network_gbit_s is None else network_gbit_s * GBIT_BYTES
    return Fabric(node.link, node.card.architecture, bytes_per_second, "tcp", "rdma", between, node.gpus)


def _assumed(name: LinkCollective, measured: MeasuredLink, fabric: Fabric) -> AssumedLink:
    """Times by size only where the fabric has a line rate; those of sizes that were measured."""
    ranks, by_sockets = measured.ranks, fabric is _GLOO
    nodes = ranks if by_sockets else measured.nodes
    one = Collective("measured", name, 0.0, ranks, nodes, ranks // nodes, 1, "backward", False)
    latency = collective_seconds(one, fabric)
    assert latency is not None
    if by_sockets:
        return AssumedLink(name, latency, (), None)
    by_size = []
    for sample in measured.of(name):
        seconds = collective_seconds(one._replace(payload_bytes=float(sample.size_bytes)), fabric)
        assert seconds is not None
        by_size.append((sample.size_bytes, seconds))
    line = fitted([(bus_factor(name, ranks) * size, seconds.likely) for size, seconds in by_size])
    return AssumedLink(name, latency, tuple(by_size), line)
