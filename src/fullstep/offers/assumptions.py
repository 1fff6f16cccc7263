"""What no offer says and a bill needs, with bounds and source: ``data/assumptions.csv``."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from typing import Literal, NamedTuple

from fullstep.offers.provider import DATA
from fullstep.quantities import GB, Bounds

What = Literal["start", "install", "download", "write", "read", "interrupted_every", "wait"]
_UNITS = {"s": 1.0, "h": 3600.0, "GB/s": float(GB)}


class Assumed(NamedTuple):
    """A figure that nobody stated."""

    bounds: Bounds
    """[s], or [B/s] for rates"""
    evidence: str
    source: str


def assumed(what: What) -> Assumed:
    """The figure for ``what``.

    >>> assumed("interrupted_every").bounds.likely / 3600
    6.0
    """
    return _all()[what]


@cache
def _all() -> Mapping[str, Assumed]:
    with (DATA / "assumptions.csv").open(encoding="utf-8", newline="") as file:
        return {
            row["what"]: Assumed(
                Bounds(*(float(row[end]) * _UNITS[row["unit"]] for end in ("low", "likely", "high"))), row["evidence"], row["source"]
            )
            for row in csv.DictReader(file)
        }
