"""What can be measured here, and with which sizes. Said before torch is loaded."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from fullstep.errors import Fault, InputError
from fullstep.lab.host import busy_notes, host_memory_bytes
from fullstep.lab.link.task import WORD_BYTES
from fullstep.quantities import GIB, MIB, format_binary

LARGEST_BYTES = {"cpu": 16 * MIB, "cuda": GIB}
"""of all messages, where nothing is said"""
_LEAST_BYTES, _GROWTH = 4 * 2**10, 4
_BUFFERS = 2
_JOB_NODES = "SLURM_JOB_NUM_NODES"


def notes_of(device: str, ranks: int, nodes: int = 1, environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """What has to be known to read the figures.

    Args:
        device: cpu or cuda
        ranks: on this node
        nodes: that take part
        environment: of this process
    """
    notes = []
    if nodes == 1:
        notes.append("one machine: nothing is said of links between nodes")
        of_job = environment.get(_JOB_NODES, "")
        if of_job.isdecimal() and int(of_job) > 1:
            notes.append(f"this job has {of_job} nodes: the one on which this was started was measured; srun starts it on all")
    else:
        notes.append(f"{nodes} nodes: a ring over all ranks is as quick as its slowest link, most often that between nodes")
    if device == "cpu":
        where = "of one machine and share its cores: times of gloo here, of no network" if nodes == 1 else "and share cores: times of gloo"
        notes.append(f"ranks on processors exchange by sockets {where}")
        notes += busy_notes(ranks)
        notes.append("gloo's reduce-scatter is an all-reduce inside, which sends twice what is counted")
    else:
        notes.append("short messages: at least what the host takes to start a call")
    return tuple(notes)


def sizes_of(device: str, ranks: int, sizes_bytes: Sequence[int] | None, max_bytes: int | None, nodes: int = 1) -> tuple[int, ...]:
    """Message sizes, the smallest first: those that are asked for, or 4 KiB and four times as much again and again up to the largest.

    Each is rounded down to whole float32 for every rank.

    >>> sizes_of("cpu", 3, None, 70_000)
    (4092, 16380, 65532)
    >>> sizes_of("cpu", 2, [8192, 4096, 4097], None)
    (4096, 8192)

    Args:
        device: cpu or cuda
        ranks: on this node, and on each other one
        sizes_bytes: asked for
        max_bytes: the largest, where sizes are not asked for
        nodes: that take part

    Raises:
        InputError: fewer bytes than ranks have words, or more than this machine has
    """
    grain = WORD_BYTES * ranks * nodes
    flag = "--sizes" if sizes_bytes is not None else "--max-bytes"
    asked = list(sizes_bytes) if sizes_bytes is not None else _grown(max_bytes or LARGEST_BYTES[device])
    if min(asked) < grain:
        raise InputError(Fault(flag, f"found {min(asked):,} bytes", f"at least {grain}, one float32 for each of {ranks * nodes} ranks"))
    host = host_memory_bytes()
    if device == "cpu" and host is not None and _BUFFERS * ranks * max(asked) > host:
        found = f"{_BUFFERS} buffers of {format_binary(max(asked))} on each of {ranks} ranks{' of a node' if nodes > 1 else ''}"
        raise InputError(Fault(flag, found, f"what fits into {format_binary(host)} of host memory"))
    return tuple(sorted({size // grain * grain for size in asked}))


def _grown(largest: int) -> list[int]:
    sizes = [min(_LEAST_BYTES, largest)]
    while sizes[-1] * _GROWTH <= largest:
        sizes.append(sizes[-1] * _GROWTH)
    return sizes
