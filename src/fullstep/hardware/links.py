"""What links between GPUs and between nodes achieve of their line rate, and how long a hop takes: ``data/links.csv``."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Literal

from fullstep.hardware.catalogue import DATA
from fullstep.quantities import Bounds

Network = Literal["rdma", "tcp", "gloo_tcp"]
"""between nodes: RDMA (InfiniBand, RoCE, EFA) or sockets under NCCL, sockets under gloo"""
Protocol = Literal["ll", "ll128", "simple"]
"""NCCL's: flags beside the data for short messages, whole buffers for long ones"""
_HOP_LINKS = {"nvswitch": "nvswitch", "nvlink_bridge": "nvswitch", "pcie_p2p": "pcie", "pcie_host": "pcie"}
_MICRO = 1e-6
_ANY_RATE = float("inf")
_Key = tuple[str, str, str, str]


@lru_cache(maxsize=1024)
def achieved_share(link: str, architecture: str, collective: str, line_gbit_s: float = 0.0) -> Bounds:
    """Share of a link's line rate in one direction that long messages reach, by ring accounting.

    A row for the architecture and the collective outranks the general ones; of rows by line rate, the first that is not below it counts,
    but no line reaches less than the fastest of the row before: 16 Gbit/s of sockets carry what 10 do.

    >>> achieved_share("nvswitch", "Hopper", "all_gather").likely, achieved_share("tcp", "", "all_reduce", 100).likely
    (0.805, 0.4)
    >>> round(achieved_share("tcp", "", "all_reduce", 16).likely * 16, 2)
    9.37

    Args:
        link: how GPUs of a node are joined, or the network between nodes
        architecture: of the card; "" between nodes
        collective: kind of collective
        line_gbit_s: line rate of a node, where shares differ by it [Gbit/s]

    Returns:
        share of the line rate
    """
    found = _find("achieved", link, architecture, collective, line_gbit_s)
    if found is None:
        raise KeyError(link)
    return found


@lru_cache(maxsize=256)
def achieved_in_switch(link: str, architecture: str, ranks: int) -> Bounds | None:
    """The same for all-reduces that a switch adds up, by ring accounting; None: none does, or not for so few ranks.

    >>> achieved_in_switch("nvswitch", "Hopper", 8), achieved_in_switch("nvswitch", "Ampere", 8)
    (Bounds(low=1.02, likely=1.06, high=1.075), None)
    """
    least = _find("in_switch_from_ranks", "nvswitch", architecture, "all_reduce")
    if least is None or ranks < least.likely:
        return None
    return _find("achieved_in_switch", link, architecture if link == "nvswitch" else "", "all_reduce")


@lru_cache(maxsize=256)
def mesh_share(link: str, architecture: str, ranks: int) -> float:
    """Share of a card's link that ``ranks`` cards can use: on a mesh each pair has a wire of its own, ``(ranks - 1) / peers``; else 1.

    >>> mesh_share("nvswitch", "CDNA3", 2) * 448, mesh_share("nvswitch", "Hopper", 2)
    (64.0, 1.0)
    """
    peers = _find("mesh_peers", link, architecture, "")
    return 1.0 if peers is None else min(1.0, (ranks - 1) / peers.likely)


@lru_cache(maxsize=64)
def base_seconds(library: str, protocol: str) -> Bounds:
    """Time of a call without hops or bytes [s], "in_switch" for one that the switch adds up."""
    return _seconds("base", library, protocol)


@lru_cache(maxsize=64)
def hop_seconds(link: str, protocol: Protocol) -> Bounds:
    """Latency of one step of a ring or tree over a link [s].

    >>> round(hop_seconds("pcie_host", "ll").likely * 1e6, 2)
    1.0
    """
    return _seconds("hop", _HOP_LINKS.get(link, link), protocol)


@lru_cache(maxsize=16)
def protocol_share(protocol: str) -> float:
    """Share of a link that a protocol, or "tree", leaves to data."""
    found = _find("protocol", "nccl", "", protocol)
    return 1.0 if found is None else found.likely


@lru_cache(maxsize=64)
def taken_share(architecture: str) -> Bounds:
    """Share of a GPU's multiprocessors that a collective occupies while it runs.

    >>> taken_share("Hopper").likely
    0.121
    """
    return _find("taken_by_communication", "nccl", architecture, "") or Bounds.exact(0.0)


@cache
def spread_share() -> Bounds:
    """Standard deviation of the times in which equal GPUs do equal work, as a share of the mean."""
    return _find("spread", "gpu", "", "") or Bounds.exact(0.0)


def _seconds(what: str, link: str, protocol: str) -> Bounds:
    found = _find(what, link, "", protocol)
    if found is None:
        raise KeyError((link, protocol))
    return Bounds(*(end * _MICRO for end in found))


def _find(what: str, link: str, architecture: str, collective: str, line_gbit_s: float = 0.0) -> Bounds | None:
    rows = _rows()
    names = [architecture[:end] for end in range(len(architecture), -1, -1)]
    for name in names:
        for kind in (collective, "") if collective else ("",):
            least = Bounds(0, 0, 0)  # Gbit/s that the fastest line of the rows before carries
            for up_to, bounds in rows.get((what, link, name, kind), ()):
                if line_gbit_s <= up_to:
                    if not least.high:
                        return bounds
                    return Bounds(*(max(share, carried / line_gbit_s) for share, carried in zip(bounds, least, strict=True)))
                least = Bounds(*(max(share * up_to, carried) for share, carried in zip(bounds, least, strict=True)))
    return None


@cache
def _rows() -> Mapping[_Key, list[tuple[float, Bounds]]]:
    found: dict[_Key, list[tuple[float, Bounds]]] = {}
    with (DATA / "links.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            key = (row["what"], row["link"], row["architecture"], row["collective"])
            up_to = float(row["up_to_gbit_s"] or _ANY_RATE)
            found.setdefault(key, []).append((up_to, Bounds(*(float(row[end]) for end in ("low", "likely", "high")))))
    return found
