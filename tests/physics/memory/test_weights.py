"""Weights, adapters and gradients by hand arithmetic."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fullstep.job import Job, complete, worksheet_from_mapping
from fullstep.physics.memory.optimizer import state_bytes
from fullstep.physics.memory.weights import gradient_bytes, trainable, weight_bytes, whole_module_elements

Make = Callable[..., Job]
PARAMETERS = 8_030_261_248
EMBEDDING = 128_256 * 4096
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


@pytest.mark.parametrize(
    ("version", "per_expert"), [("5.23", 8 * (16 + 2 * 32) + 4 * (32 + 16)), ("4.57", 2 * 4 * (16 + 32) + 4 * (32 + 16))]
)
def test_adapters_of_experts(version: str, per_expert: int) -> None:
    """Width 16, experts of 32: gate and up are one parameter with twice the rank, or two modules; down is one either way."""
    config = {"model_type": "mixtral", "hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "num_hidden_layers": 1}
    worksheet = {
        "model": {"config": config | {"num_key_value_heads": 1, "num_local_experts": 3}},
        "method": {"kind": "lora", "rank": 4, "targets": ["w1", "w2", "w3"]},
        "step": {"framework_version": version},
    }
    assert trainable(complete(worksheet_from_mapping(worksheet, "experts"))).total == 3 * per_expert


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


def tiny_matrices() -> list[tuple[int, int, int]]:
    """Llama of 2 layers: width 64, 128 inner, 2 of 4 heads grouped, 256 words, untied."""
    return [(256, 64, 2), (64, 64, 4), (32, 64, 4), (128, 64, 4), (64, 128, 2)]
