"""States of optimizers from libraries beside torch, in bytes, against arithmetic. Run by `make test-slow`, which installs the libraries."""

from __future__ import annotations

import pytest
import torch
from stepped import ALL, EDGES, VECTORS, stepped

pytestmark = [pytest.mark.real_classes, pytest.mark.filterwarnings("ignore")]
SMALL = VECTORS + 8 * 32 * 64
"""in tensors of fewer than 4,096 numbers, whose states are not packed: vectors, keys and values"""
WIDE = EDGES // 2 + SMALL
"""what has float32 states among 8-bit ones of bitsandbytes: the embedding as well"""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("lion", 2 * ALL),
        ("lion_8bit", 4 * WIDE + (ALL - WIDE) * (1 + 4 / 256)),
        ("adamw_8bit", 2 * (4 * WIDE + (ALL - WIDE) * (1 + 4 / 256))),
        ("paged_adamw", 2 * 4 * ALL),
        ("paged_adamw_8bit", 2 * (4 * WIDE + (ALL - WIDE) * (1 + 4 / 256))),
        ("adamw_4bit", 2 * (2 * SMALL + (ALL - SMALL) * (1 / 2 + 4 / 128))),
    ],
)
def test_states(name: str, expected: float) -> None:
    """Codes, and a float32 for a block of 256 numbers, or of 128. Tables of what a code stands for are left out."""
    states = [(key, value) for each in stepped(name).optimizer.state.values() for key, value in each.items()]
    held = sum(_bytes(value) for key, value in states if isinstance(value, torch.Tensor) and "qmap" not in key)
    assert held == pytest.approx(expected, rel=1e-3)


def _bytes(state: torch.Tensor) -> int:
    """Of torchao's tensors what they are made of."""
    parts = (state.codes, state.scale) if hasattr(state, "codes") else (state,)
    return sum(part.nbytes for part in parts)
