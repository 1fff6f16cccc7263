"""A measurement from the start of its ranks to one account of all of them."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from fullstep.errors.stops import stoppable, stops_wait
from fullstep.lab.link.task import Record, Task, record_path, write_task
from fullstep.lab.ranks.nodes import ONE_NODE, Nodes
from fullstep.lab.ranks.tree import started
from fullstep.lab.room import room_of
from fullstep.ledger.link import LINK_COLLECTIVES, LinkSample, MeasuredLink
from fullstep.quantities import counted

Progress = Callable[[str], None]
WARM_UP = 5
"""as nccl-tests"""
_WORKER = "fullstep.lab.link.worker"
_SETTINGS = (
    "NCCL_ALGO", "NCCL_PROTO", "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE", "NCCL_NVLS_ENABLE", "NCCL_MIN_NCHANNELS",
    "NCCL_MAX_NCHANNELS", "NCCL_NTHREADS", "NCCL_BUFFSIZE", "NCCL_CUMEM_ENABLE", "CUDA_VISIBLE_DEVICES", "GLOO_SOCKET_IFNAME",
)  # fmt: skip
"""environment variables that change what is measured"""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is to be measured."""

    device: str
    """cpu or cuda"""
    ranks: int
    """of this node, and of each other one"""
    sizes_bytes: tuple[int, ...]
    iterations: int
    silent_seconds: float = 600.0
    notes: tuple[str, ...] = ()
    versions: tuple[tuple[str, str], ...] = ()
    nodes: Nodes = ONE_NODE


def measure_link(wanted: Wanted, progress: Progress = lambda _: None) -> MeasuredLink | None:
    """All collectives with all sizes on real ranks, which are gone afterwards. None: the first one of several nodes tells of it.

    Args:
        wanted: what is to be measured; its limits are looked at before
        progress: is told the stages as they come

    Raises:
        LabError: a process died or hung
    """
    begun, made = time.monotonic(), datetime.now(UTC).isoformat(timespec="seconds")
    with stops_wait(), room_of("link") as folder, stoppable():
        task = Task(wanted.device, LINK_COLLECTIVES, wanted.sizes_bytes, wanted.iterations, WARM_UP, folder)
        path = Path(folder, "task.json")
        write_task(task, path)
        progress(f"starting {counted(wanted.ranks, 'rank')}{wanted.nodes.words}")
        with started("the link's ranks", wanted.ranks, _WORKER, path, {}, nodes=wanted.nodes) as tree, stoppable():
            tree.wait_for_ranks(wanted.silent_seconds, progress)
            tree.wait_for_end()
        if wanted.nodes.rank:
            return None
        ranks = wanted.ranks * wanted.nodes.total
        records = [json.loads(record_path(folder, rank).read_text(encoding="utf-8")) for rank in range(ranks)]
    return MeasuredLink(
        made=made, device=", ".join(dict.fromkeys(record["device"] for record in records)), backend=records[0]["backend"],
        ranks=ranks, nodes=wanted.nodes.total, processors=os.cpu_count() or 1, iterations=wanted.iterations, warm_up=WARM_UP,
        samples=slowest(records), missing=records[0]["missing"],
        versions={"python": sys.version.split()[0], **dict(wanted.versions), **records[0]["versions"]},
        settings=_settings(os.environ), notes=wanted.notes, seconds=time.monotonic() - begun,
    )  # fmt: skip


def slowest(records: Sequence[Record]) -> tuple[LinkSample, ...]:
    """Of each call the seconds of the rank that took longest.

    >>> slowest([{"samples": [["send", 8, [1.0, 2.0]]]}, {"samples": [["send", 8, [1.5, 1.0]]]}])
    (LinkSample(collective='send', size_bytes=8, ranks=2, seconds=(1.5, 2.0)),)
    """
    found = []
    for rows in zip(*(record["samples"] for record in records), strict=True):
        collective, size_bytes, _ = rows[0]
        seconds = tuple(max(calls) for calls in zip(*(row[2] for row in rows), strict=True))
        found.append(LinkSample(collective, size_bytes, len(records), seconds))
    return tuple(found)


def _settings(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: environment[name] for name in _SETTINGS if name in environment}
