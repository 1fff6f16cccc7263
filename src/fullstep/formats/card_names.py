"""What launch tools call the cards of the catalogue.

Source:
    SkyPilot: catalogs/v8/common/accelerators.csv of skypilot-org/skypilot-catalog, sky/utils/gpu_names.py and the fetchers of skypilot
    0.14.1; dstack: the known GPUs of gpuhunt 0.1.34, which dstack 0.22.5 matches names and memory with
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal

from fullstep.errors import Fault, InputError

_CARDS = Path(__file__).parent / "data" / "launch_cards.csv"


@cache
def _rows() -> Mapping[str, Mapping[str, str]]:
    """Rows by the catalogue's key.

    ``skypilot``: its names, any of them; ``skypilot_at``: the name at one provider; ``dstack``: name:memory.
    """
    with _CARDS.open(encoding="utf-8", newline="") as file:
        return {row["card"]: row for row in csv.DictReader(file)}


def skypilot_names(card: str, provider: str | None) -> tuple[str, ...]:
    """SkyPilot's names of a card: several are alternatives, since its providers do not agree.

    >>> skypilot_names("H100-SXM", None), skypilot_names("H100-SXM", "runpod"), skypilot_names("A6000", None)
    (('H100',), ('H100-SXM',), ('A6000', 'RTXA6000'))

    Raises:
        InputError: SkyPilot has no name for it
    """
    row = _row(card, "skypilot")
    at = dict(entry.split("=") for entry in row["skypilot_at"].split("|") if entry)
    return (at[provider],) if provider in at else tuple(row["skypilot"].split("|"))


def dstack_gpu(card: str, gpus: int) -> str:
    """The GPU requirement as dstack writes it.

    >>> dstack_gpu("A100-SXM4-80GB", 8)
    'A100:80GB:8'

    Raises:
        InputError: dstack has no name for it
    """
    return f"{_row(card, 'dstack')['dstack']}:{gpus}"


def _row(card: str, tool: Literal["skypilot", "dstack"]) -> Mapping[str, str]:
    row = _rows().get(card)
    if row is None or not row[tool]:
        known = ", ".join(key for key, names in _rows().items() if names[tool])
        remedy = "slurm and torchrun take any card."
        raise InputError(Fault("machine.gpu", f"{card}, for which {tool} has no name", known, remedy))
    return row
