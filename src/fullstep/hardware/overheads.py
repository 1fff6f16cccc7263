"""What a process holds on a GPU beside its tensors: the CUDA context, NCCL's communicators, cuBLAS's workspaces."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from fullstep.hardware.card import Card
from fullstep.hardware.catalogue import DATA
from fullstep.quantities import MIB, Bounds

CUBLAS_HANDLES = 2
"""torch keeps one handle per thread and stream: the main thread computes forward, the autograd thread backward"""
_UNIT_BYTES = {"B": 1, "MiB": MIB}


class DeviceOverheads(NamedTuple):
    """Bytes on one GPU."""

    context_bytes: Bounds
    """the CUDA context with the kernels that a training step loads; outside torch's counters"""
    communicator_bytes: Bounds
    """one NCCL communicator within a node; outside torch's counters; none on a single GPU"""
    communicator_between_nodes_bytes: Bounds
    """one that joins nodes"""
    cublas_workspace_bytes: int
    """of all handles of a training step together; inside torch's allocated counter"""


def device_overheads(card: Card | None) -> DeviceOverheads:
    """Overheads on this card; None: a card of which nothing is known.

    Bounds, evidence and sources stand in ``data/device_overheads.csv``; a row for the architecture outranks the general one.

    >>> from fullstep.hardware import find_card
    >>> device_overheads(find_card("H100-SXM")).cublas_workspace_bytes == 2 * 32 * 2**20
    True
    """
    return _overheads(card.architecture if card is not None else "")


@cache
def _overheads(architecture: str) -> DeviceOverheads:
    def bounds(what: str) -> Bounds:
        rows = _rows()
        own = next((own for start in _families(architecture) if (own := rows.get((what, start)))), None)
        return own or rows[what, ""]

    return DeviceOverheads(
        context_bytes=bounds("context"),
        communicator_bytes=bounds("communicator"),
        communicator_between_nodes_bytes=bounds("communicator_between_nodes"),
        cublas_workspace_bytes=int(bounds("cublas_workspace").likely) * CUBLAS_HANDLES,
    )


def _families(architecture: str) -> tuple[str, ...]:
    """An architecture's names from narrow to wide.

    >>> _families("Hopper+Grace")
    ('Hopper+Grace', 'Hopper')
    """
    return (architecture, architecture.split("+", 1)[0].split(" ", 1)[0])


@cache
def _rows() -> Mapping[tuple[str, str], Bounds]:
    with (DATA / "device_overheads.csv").open(encoding="utf-8", newline="") as file:
        return {
            (row["what"], row["architecture"]): Bounds(*(float(row[end]) * _UNIT_BYTES[row["unit"]] for end in ("low", "likely", "high")))
            for row in csv.DictReader(file)
        }
