"""Random numbers of one rank: torch's on processor and GPU, Python's and numpy's."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from typing import Any

import torch


def rng_state() -> dict[str, Any]:
    """All generators of this process that others draw from without asking."""
    state: dict[str, Any] = {"torch": torch.get_rng_state(), "python": random.getstate()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    if "numpy" in sys.modules:
        kind, keys, *rest = sys.modules["numpy"].random.get_state()
        state["numpy"] = (kind, keys.tolist(), *rest)
    return state


def set_rng_state(state: Mapping[str, Any]) -> None:
    """As they were; generators that are not in the state keep theirs."""
    torch.set_rng_state(state["torch"])
    version, keys, gauss = state["python"]
    random.setstate((version, tuple(keys), gauss))
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
    if "numpy" in state:
        import numpy as np  # noqa: PLC0415 - only who used it needs it

        kind, keys, *rest = state["numpy"]
        np.random.set_state((kind, np.asarray(keys, dtype=np.uint32), *rest))


def new_streams(step: int, rank: int, ranks: int) -> None:
    """Streams that no rank had before: what was saved belongs to another number of ranks.

    They follow from step, rank and the number of ranks, so that the same resumption draws the same numbers again.
    """
    seed = random.Random(f"{step} {rank} of {ranks}").getrandbits(63)
    torch.manual_seed(seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)
