"""Sizes that follow from kernels."""

from __future__ import annotations

from fullstep.physics.memory.kernels import FLOAT32, Kernels


def test_tokens_are_rows_times_length(kernels: Kernels) -> None:
    assert kernels._replace(rows=3, sequence_tokens=2048).tokens == 6144
    assert FLOAT32 == 4
