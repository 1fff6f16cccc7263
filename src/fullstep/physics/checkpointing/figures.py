"""What is not physics of a checkpoint: bytes that containers add, memory of savers, how often GPUs fail. ``data/figures.csv``."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from fullstep.quantities import GB, HOUR_SECONDS, Bounds

What = Literal[
    "tensor_archive", "scalar_archive", "tensor_record", "safetensors_entry", "metadata_key", "metadata_piece", "group_name", "rng_state",
    "scheduler", "trainer_state", "trainer_settings", "adapter_settings", "staged_by_thread", "staged_by_process", "saver_process",
    "slowed_by_thread", "pageable_copy", "gpu_hours_per_failure",
]  # fmt: skip
_UNITS = {"B": 1.0, "GB": float(GB), "GB/s": float(GB), "shares": 1.0, "h": HOUR_SECONDS}


class Figure(NamedTuple):
    """One row."""

    value: Bounds
    """[bytes], [B/s], [s] or a share, as its row says"""
    evidence: str
    source: str


def figure(what: What) -> Figure:
    """The row for ``what``.

    >>> figure("scalar_archive").value.likely
    1261.0
    """
    return _all()[what]


def likely_bytes(what: What) -> float:
    """The likely value of a row in bytes."""
    return _all()[what].value.likely


@cache
def _all() -> Mapping[str, Figure]:
    with (Path(__file__).parent / "data" / "figures.csv").open(encoding="utf-8", newline="") as file:
        return {
            row["what"]: Figure(
                Bounds(*(float(row[end]) * _UNITS[row["unit"]] for end in ("low", "likely", "high"))), row["evidence"], row["source"]
            )
            for row in csv.DictReader(file)
        }
