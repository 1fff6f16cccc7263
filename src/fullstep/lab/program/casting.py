"""Autocast where processors stand in for a GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from fullstep.job import Settings
from fullstep.lab.program.dtypes import DTYPES


@contextlib.contextmanager
def answered_as_on_gpus(settings: Settings) -> Iterator[None]:
    """Code that asks whether autocast is on and names no device asks for CUDA's: it is told so where the worksheet casts.

    Adapters over packed bases ask. Source: peft 0.21, tuners/lora/bnb.py and tuners/ia3/bnb.py, requires_conversion.
    """
    precision = settings.precision
    if not precision.autocast or precision.compute == "float32":
        yield
        return
    before = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
    torch.set_autocast_enabled("cuda", True)
    torch.set_autocast_dtype("cuda", DTYPES[precision.compute])
    try:
        yield
    finally:
        torch.set_autocast_enabled("cuda", before[0])
        torch.set_autocast_dtype("cuda", before[1])
