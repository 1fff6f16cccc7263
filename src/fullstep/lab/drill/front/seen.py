"""What the ranks of a leg recorded, put together to what the training as a whole did."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fullstep.lab.drill.leg import Leg, Record, record_path

Digests = Mapping[str, str]


class Step(NamedTuple):
    """One optimizer step over all ranks."""

    loss: float
    rates: tuple[float, ...]
    rows: tuple[int, ...]
    """in the order of the ranks"""
    seconds: float
    """of the slowest rank"""


@dataclass(frozen=True, slots=True)
class Seen:
    """One training of a leg."""

    name: str
    steps: Mapping[int, Step]
    digests: Mapping[str, Digests]
    """by moment: a step's number, ``loaded``, ``saved 3``"""
    ranks: tuple[Mapping[str, Any], ...]
    """each rank's own record of it"""

    def worst(self, *path: str | int) -> float:
        """The largest value of any rank at a place of its record."""
        return max(float(_at(rank, path)) for rank in self.ranks)

    def total(self, *path: str | int) -> int | None:
        """The sum of all ranks' values at a place of the record; None: one of them has none."""
        values = [_at(rank, path) for rank in self.ranks]
        return None if any(value is None for value in values) else sum(int(value) for value in values)


def read_records(leg: Leg, ranks: int) -> list[Record]:
    """Of all ranks, in their order."""
    return [json.loads(record_path(leg.records, rank).read_text(encoding="utf-8")) for rank in range(ranks)]


def seen_of(records: Sequence[Record]) -> dict[str, Seen]:
    """The trainings of a leg by name."""
    found = {}
    for index, first in enumerate(records[0]["runs"]):
        ranks = tuple(record["runs"][index] for record in records)
        steps = {int(number): _step([rank["steps"][number] for rank in ranks]) for number in first["steps"]}
        found[first["name"]] = Seen(first["name"], steps, first["digests"], ranks)
    return found


def _step(parts: Sequence[Mapping[str, Any]]) -> Step:
    """Losses are added up exactly, so that the order of the ranks makes no difference; rates are told of each rank where they differ.

    >>> _step([{"losses": [1.0, 2.0], "rates": [0.1], "rows": [4, 5], "seconds": 1.0},
    ...        {"losses": [3.0, 6.0], "rates": [0.1], "rows": [6, 7], "seconds": 1.5}])
    Step(loss=3.0, rates=(0.1,), rows=(4, 5, 6, 7), seconds=1.5)
    """
    losses = [loss for part in parts for loss in part["losses"]]
    rows = tuple(row for part in parts for row in part["rows"])
    alike = all(part["rates"] == parts[0]["rates"] for part in parts)
    rates = tuple(rate for part in (parts[:1] if alike else parts) for rate in part["rates"])
    return Step(math.fsum(losses) / len(losses), rates, rows, max(part["seconds"] for part in parts))


def _at(record: Mapping[str, Any], path: Sequence[str | int]) -> Any:
    value: Any = record
    for key in path:
        value = value[key]
    return value
