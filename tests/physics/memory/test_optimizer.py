"""Optimizer states and temporaries by hand arithmetic and against traces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tiny_jobs import job as tiny_job

from fullstep.job import Job
from fullstep.physics.memory.optimizer import matrix_sides, optimizer_temporaries_bytes, paged_state_bytes, state_bytes

Make = Callable[..., Job]
PARAMETERS = 8_030_261_248
EMBEDDING = 128_256 * 4096


@pytest.mark.parametrize(
    ("name", "bytes_per_parameter"),
    [
        ("adamw", 4), ("adam", 4), ("sgd", 0), ("sgd_momentum", 2), ("lion", 2), ("paged_adamw", 4),
        ("paged_adamw_8bit", 2 * (1 + 4 / 256)),
        ("adamw_8bit", 2 * (1 + 4 / 256)), ("lion_8bit", 1 + 4 / 256), ("adamw_4bit", 2 * (0.5 + 4 / 128)),
    ],
)  # fmt: skip
def test_states_of_bfloat16_weights(eight_billion: Make, name: str, bytes_per_parameter: float) -> None:
    assert state_bytes(eight_billion(optimizer__name=name)) == PARAMETERS * bytes_per_parameter


def test_traced_multiples_of_8_and_4_bit_states(eight_billion: Make) -> None:
    """Traces of torchao's optimizers on a two-layer 8B: 1.016 and 0.53 times the weights' bytes."""
    assert state_bytes(eight_billion(optimizer__name="adamw_8bit")) / (2 * PARAMETERS) == pytest.approx(1.016, abs=0.001)
    assert state_bytes(eight_billion(optimizer__name="adamw_4bit")) / (2 * PARAMETERS) == pytest.approx(0.53, abs=0.01)


def test_small_tensors_are_not_paged(eight_billion: Make) -> None:
    """bitsandbytes, get_state_buffer: 100,000 elements; LoRA A of rank 16 has 65,536 from 4,096 features, 229,376 from 14,336."""
    job = eight_billion(method__kind="lora", method__rank=16, method__targets=["q_proj", "k_proj"], optimizer__name="paged_adamw")
    assert (paged_state_bytes(job), state_bytes(job) > 0) == (0, True)
    down = eight_billion(method__kind="lora", method__rank=16, method__targets=["down_proj"], optimizer__name="paged_adamw_8bit")
    assert paged_state_bytes(down) == 32 * 2 * 16 * 14_336  # its B has 16 x 4096
    assert paged_state_bytes(eight_billion()) == 0


def tiny_matrices() -> list[tuple[int, int, int]]:
    """Llama of 2 layers: width 64, 128 inner, 2 of 4 heads grouped, 256 words, untied."""
    return [(256, 64, 2), (64, 64, 4), (32, 64, 4), (128, 64, 4), (64, 128, 2)]


def test_matrices_that_train() -> None:
    assert sorted(matrix_sides(tiny_job())) == sorted(tiny_matrices())
    lora = tiny_job(method__kind="lora", method__rank=4, method__targets=["q_proj"])
    assert sorted(matrix_sides(lora)) == [(4, 64, 2), (64, 4, 2)]


def test_factored_states() -> None:
    """Adafactor: float32 per row and column, and per element of what is no matrix. GaLore, APOLLO: low rank of the longer side."""
    vectors = 5 * 64  # two norms per block and the last
    lines = sum((rows + columns) * count for rows, columns, count in tiny_matrices())
    assert state_bytes(tiny_job(optimizer__name="adafactor")) == 4 * (lines + vectors)
    muon = sum(rows * columns * count for rows, columns, count in tiny_matrices() if rows != 256)
    assert state_bytes(tiny_job(optimizer__name="muon")) == 2 * (muon + 2 * (2 * 256 * 64 + vectors))


@pytest.mark.parametrize(
    ("optimizer", "times_bytes", "times_largest"),
    [
        ({"name": "adamw"}, 1, 0),  # foreach: the square roots of all second moments at once
        ({"name": "adamw", "implementation": "single"}, 0, 2),
        ({"name": "adamw", "implementation": "fused"}, 0, 0),
        ({"name": "sgd"}, 0, 0),
        ({"name": "sgd_momentum"}, 0, 0),
        ({"name": "adamw_8bit"}, 0, 0),
        ({"name": "lion"}, 0, 1),
        ({"name": "adafactor"}, 0, 8),  # four float32 copies of the largest bfloat16 tensor, as traced
        ({"name": "adamw", "in_backward": True}, 0, 2),
    ],
)
def test_temporaries_of_the_step(eight_billion: Make, optimizer: dict[str, Any], times_bytes: int, times_largest: int) -> None:
    job = eight_billion(**{f"optimizer__{key}": value for key, value in optimizer.items()})
    trained, largest = 2.0 * PARAMETERS, 2.0 * EMBEDDING
    assert optimizer_temporaries_bytes(job, trained, largest) == pytest.approx(times_bytes * trained + times_largest * largest)
