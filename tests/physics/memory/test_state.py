"""What is kept between steps, by hand from Llama-3.1-8B: 8,030,261,248 parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tiny_jobs import job as tiny_job

from fullstep.job import Job
from fullstep.physics.memory.state import (
    gradient_bytes,
    matrix_sides,
    optimizer_temporaries_bytes,
    quantized_bytes_per_weight,
    state_bytes,
    trainable,
    weight_bytes,
    whole_module_elements,
)

Make = Callable[..., Job]
PARAMETERS = 8_030_261_248
EMBEDDING = 128_256 * 4096
PER_BLOCK = 2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 4096 * 14336
"""weights of the seven linears of a block; norms besides"""
LORA = {"method__kind": "lora", "method__targets": "all-linear"}
ADAPTERS = 32 * 16 * (2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 14336))


def test_full_bfloat16_keeps_six_bytes_and_two_of_gradients(eight_billion: Make) -> None:
    job = eight_billion()
    assert weight_bytes(job).total == 2 * PARAMETERS
    assert gradient_bytes(job) == 2 * PARAMETERS
    assert state_bytes(job) == 4 * PARAMETERS


def test_float32_weights_make_sixteen(eight_billion: Make) -> None:
    job = eight_billion(precision__weights="float32")
    assert weight_bytes(job).total + gradient_bytes(job) + state_bytes(job) == 16 * PARAMETERS


def test_master_weights_make_sixteen_too(eight_billion: Make) -> None:
    """DeepSpeed: 2 + 2 + 4 master + 4 + 4."""
    job = eight_billion(layout__strategy="zero1", machine__gpus=8)
    assert weight_bytes(job).total + gradient_bytes(job) + state_bytes(job) == 16 * PARAMETERS
    assert weight_bytes(job).masters == 4 * PARAMETERS


def test_lora_adds_rank_times_both_sides(eight_billion: Make) -> None:
    job = eight_billion(**LORA)
    assert trainable(job).total == ADAPTERS == 41_943_040
    assert weight_bytes(job).total == 2 * PARAMETERS + 4 * ADAPTERS
    assert gradient_bytes(job) + state_bytes(job) == 12 * ADAPTERS


def test_dora_adds_a_magnitude_per_output(eight_billion: Make) -> None:
    outputs = 32 * (2 * 4096 + 2 * 1024 + 2 * 14336 + 4096)
    assert trainable(eight_billion(method__kind="dora", method__targets="all-linear")).total == ADAPTERS + outputs


def test_ia3_has_vectors(eight_billion: Make) -> None:
    """peft's default for llama: outputs of k_proj and v_proj, inputs of down_proj."""
    assert trainable(eight_billion(method__kind="ia3")).total == 32 * (1024 + 1024 + 14336)


def test_prefix_tuning_has_keys_and_values(eight_billion: Make) -> None:
    assert trainable(eight_billion(method__kind="prefix_tuning", method__rank=20)).total == 20 * 32 * 2 * 1024


def test_bottlenecks_have_biases(eight_billion: Make) -> None:
    """Houlsby et al. 2019: after attention and after the feed-forward layer, 2 h r + h + r each."""
    assert trainable(eight_billion(method__kind="bottleneck", method__rank=64)).total == 32 * 2 * (2 * 4096 * 64 + 4096 + 64)


def test_modules_beside_adapters_train_in_the_weights_dtype(eight_billion: Make) -> None:
    """peft keeps the frozen original and trains a copy; adapters are float32, the copy is bfloat16 as the weights are."""
    job = eight_billion(**LORA, method__train_modules=["lm_head", "embed_tokens"])
    assert trainable(job).modules == 2 * EMBEDDING
    assert weight_bytes(job).modules == 2 * 2 * EMBEDDING
    assert gradient_bytes(job) == 4 * ADAPTERS + 2 * 2 * EMBEDDING
    assert state_bytes(job) == 8 * ADAPTERS + 4 * 2 * EMBEDDING
    assert whole_module_elements(job.shape, "q_proj") == 32 * 4096 * 4096
    stated = eight_billion(**LORA, method__train_modules=["lm_head"], optimizer__state_dtype="float32")
    assert state_bytes(stated) == 8 * (ADAPTERS + EMBEDDING)


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


@pytest.mark.parametrize(
    ("name", "bytes_per_parameter"),
    [
        ("adamw", 4), ("adam", 4), ("sgd", 0), ("sgd_momentum", 2), ("lion", 2), ("paged_adamw", 0), ("paged_adamw_8bit", 0),
        ("adamw_8bit", 2 * (1 + 4 / 256)), ("lion_8bit", 1 + 4 / 256), ("adamw_4bit", 2 * (0.5 + 4 / 128)),
    ],
)  # fmt: skip
def test_states_of_bfloat16_weights(eight_billion: Make, name: str, bytes_per_parameter: float) -> None:
    assert state_bytes(eight_billion(optimizer__name=name)) == PARAMETERS * bytes_per_parameter


def test_traced_multiples_of_8_and_4_bit_states(eight_billion: Make) -> None:
    """Traces of torchao's optimizers on a two-layer 8B: 1.016 and 0.53 times the weights' bytes."""
    assert state_bytes(eight_billion(optimizer__name="adamw_8bit")) / (2 * PARAMETERS) == pytest.approx(1.016, abs=0.001)
    assert state_bytes(eight_billion(optimizer__name="adamw_4bit")) / (2 * PARAMETERS) == pytest.approx(0.53, abs=0.01)


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
