"""Placeholders of gradients, by hand, and when buffers of gradients are there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fullstep.job import Job
from fullstep.physics.memory.megatron import keeps_gradient_buffers, placeholder_bytes
from fullstep.physics.memory.rank import ranks_of

MEGATRON: dict[str, Any] = {"step__framework": "megatron", "layout__strategy": "zero1", "machine__gpus": 2}


def test_one_placeholder_per_shape(eight_billion: Callable[..., Job]) -> None:
    """Of Llama-3.1-8B: joined queries, keys and values, output, joined gate and up, down, and the output matrix; once, not per block."""
    elements = 4096 * (4096 + 2 * 1024) + 4096 * 4096 + 4096 * 2 * 14336 + 14336 * 4096 + 128256 * 4096
    assert placeholder_bytes(eight_billion(**MEGATRON)) == 2 * elements
    (rank,) = ranks_of(eight_billion(**MEGATRON, layout__tensor=2))
    assert placeholder_bytes(rank.job) == elements


def test_only_where_megatron_trains_weights(eight_billion: Callable[..., Job]) -> None:
    assert placeholder_bytes(eight_billion(machine__gpus=2)) == 0
    assert placeholder_bytes(eight_billion(**MEGATRON, method__kind="lora")) == 0
    assert not keeps_gradient_buffers(eight_billion(machine__gpus=2, layout__strategy="zero1"))
    assert keeps_gradient_buffers(eight_billion(**MEGATRON))
