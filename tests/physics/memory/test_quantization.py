"""Quantized storage against the published bits per weight."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fullstep.job import Job
from fullstep.physics.memory.quantization import quantized_bytes_per_weight
from fullstep.physics.memory.weights import weight_bytes

Make = Callable[..., Job]
PARAMETERS = 8_030_261_248
EMBEDDING = 128_256 * 4096
PER_BLOCK = 2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 4096 * 14336
"""weights of the seven linears of a block; norms besides"""


@pytest.mark.parametrize(
    ("quantization", "double", "bits"),
    [
        ("nf4", False, 4 + 32 / 64),
        ("nf4", True, 4 + 8 / 64 + 32 / (64 * 256)),  # Dettmers et al. 2023: 0.5 bit becomes 0.127
        ("fp4", False, 4.5),
        ("mxfp4", False, 4 + 8 / 32),
        ("gptq", False, 4 + 16 / 128 + 4 / 128),
        ("int8", False, 8),
    ],
)
def test_bits_of_a_quantized_weight(quantization: str, double: bool, bits: float) -> None:
    assert 8 * quantized_bytes_per_weight(quantization, double) == bits


def test_nf4_leaves_embedding_head_and_norms(eight_billion: Make) -> None:
    norms = PARAMETERS - 2 * EMBEDDING - 32 * PER_BLOCK
    quantized = 32 * PER_BLOCK * 0.5625
    upcast = weight_bytes(eight_billion(method__kind="qlora"))
    assert upcast.blocks + upcast.outside == quantized + 4 * (2 * EMBEDDING + norms)
    kept = weight_bytes(eight_billion(method__kind="qlora", method__upcast_unquantized=False))
    assert kept.blocks + kept.outside == quantized + 2 * (2 * EMBEDDING + norms)
    assert kept.constants == 32 * PER_BLOCK * 0.0625


def test_a_large_vocabulary_in_float32(eight_billion: Make) -> None:
    """Qwen2.5-7B, 152 k words, untied: 7.2 GiB loaded with what is not quantized in float32; about 3.9 + 2 bytes of it without."""
    job = eight_billion(model__name="Qwen/Qwen2.5-7B", method__kind="qlora", method__double_quantization=True)
    found = weight_bytes(job)
    assert (found.blocks + found.outside) / 2**30 == pytest.approx(7.2, abs=0.1)
