"""From a job to kernels and dtypes: what CUDA, autocast and the layout choose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fullstep.job import Job, complete, worksheet_from_mapping
from fullstep.physics.memory.choices import (
    attention_kernel,
    block_kernels,
    compute_bytes,
    gradient_sizes,
    is_masked,
    loss_habit,
    residual_bytes,
)

Make = Callable[..., Job]
FSDP = {"layout__strategy": "fsdp", "machine__gpus": 8}
QLORA = {"method__kind": "qlora"}


@pytest.mark.parametrize(
    ("keys", "compute", "residual"),
    [
        ({}, 2, 2),
        ({"precision__weights": "float32"}, 2, 4),  # autocast: the embedding is float32 and so is the stream
        ({"precision__weights": "float32", "precision__compute": "float32"}, 4, 4),
        ({"precision__weights": "float32"} | FSDP, 2, 2),  # gathered in bfloat16
        ({"precision__weights": "float32", "precision__autocast": False}, 4, 4),
        ({"precision__compute": "fp8"}, 2, 2),  # products in 8 bits, activations in bfloat16
        (QLORA, 2, 4),  # what is not quantized is float32
        (QLORA | {"method__upcast_unquantized": False}, 2, 2),
        (QLORA | {"precision__autocast": False}, 4, 4),  # 4-bit layers give back their input's dtype
        ({"layout__strategy": "zero2", "machine__gpus": 8}, 2, 2),  # master weights
    ],
)
def test_bytes_of_activations(eight_billion: Make, keys: dict[str, Any], compute: int, residual: int) -> None:
    job = eight_billion(**keys)
    assert (compute_bytes(job), residual_bytes(job)) == (compute, residual)


@pytest.mark.parametrize(
    ("keys", "kernel"),
    [
        ({}, "flash"),
        ({"batch__packed": False}, "efficient"),  # a mask
        ({"batch__packed": False, "step__attention": "flash"}, "flash"),  # padding is cut out instead
        ({"step__attention": "eager"}, "eager"),
        ({"precision__weights": "float32", "precision__compute": "float32"}, "math"),  # grouped keys in float32: whole score matrices
        ({"model__name": "tiiuae/falcon-7b"}, "math"),  # one head of keys, which its class does not say to be grouped
        ({"precision__weights": "float32", "precision__compute": "float32", "step__framework_version": "4.52.0"}, "efficient"),
        ({"method__kind": "prefix_tuning"}, "efficient"),
    ],
)
def test_kernel_of_attention(eight_billion: Make, keys: dict[str, Any], kernel: str) -> None:
    job = eight_billion(**keys)
    assert attention_kernel(job, job.shape.blocks[0], compute_bytes(job)) == kernel


@pytest.mark.parametrize(
    ("config", "kernel"),
    [
        ({"model_type": "bloom"}, "eager"),  # ALiBi
        ({"model_type": "gpt_oss"}, "eager"),  # sinks: a class without sdpa
        ({"model_type": "gemma2"}, "eager"),  # capped scores: a class without sdpa
        ({"model_type": "llama", "head_dim": 512}, "efficient"),  # flash takes heads up to 256
        ({"model_type": "deepseek_v3"}, "efficient"),  # values narrower than keys
        ({"model_type": "qwen2"}, "flash"),
    ],
)
def test_kernel_of_model_types(config: dict[str, Any], kernel: str) -> None:
    job = complete(worksheet_from_mapping({"model": {"config": config}}, "kernel"))
    assert attention_kernel(job, job.shape.blocks[0], 2) == kernel


def test_a_window_needs_a_mask_where_rows_are_longer() -> None:
    def masked(tokens: int) -> bool:
        config = {"model_type": "mistral", "sliding_window": 4096}
        job = complete(worksheet_from_mapping({"model": {"config": config}, "batch": {"sequence_tokens": tokens}}, "window"))
        return is_masked(job, job.shape.blocks[0])

    assert (masked(4096), masked(4097)) == (False, True)


@pytest.mark.parametrize(
    ("version", "attention", "window", "kernel"),
    [
        ("4.37.2", "sdpa", None, "flash"),
        ("4.40.2", "sdpa", 4096, "efficient"),
        ("4.37.2", "eager", 4096, "eager"),
        ("4.37.2", "flash", 4096, "flash"),
    ],
)
def test_early_sdpa_left_windows_out(version: str, attention: str, window: int | None, kernel: str) -> None:
    """modeling_mistral.py of transformers 4.37.2 makes its mask for sdpa without sliding_window, that of 4.40.2 with it."""
    step = {"framework_version": version, "attention": attention}
    model = {"config": {"model_type": "mistral", "sliding_window": 4096}}
    job = complete(worksheet_from_mapping({"model": model, "batch": {"sequence_tokens": 8192}, "step": step}, "early"))
    found = block_kernels(job, job.shape.blocks[0])
    assert (found.window, found.attention) == (window, kernel)


@pytest.mark.parametrize(
    ("keys", "left", "besides"),
    [
        ({}, 2, 0),
        ({"precision__weights": "float32"}, 4, 2),  # made in bfloat16, copied to float32
        ({"optimizer__in_backward": True}, 0, 2),  # used at once
        (FSDP, 2, 0),  # the unit's own until it is reduced
    ],
)
def test_weight_gradients(eight_billion: Make, keys: dict[str, Any], left: int, besides: int) -> None:
    assert gradient_sizes(eight_billion(**keys)) == (left, besides)


def test_kernels_of_a_job(eight_billion: Make) -> None:
    job = eight_billion(method__kind="lora", method__dropout=0.1, batch__micro_batch=3, step__activation_checkpointing="selective")
    kernels = block_kernels(job, job.shape.blocks[0])
    assert (kernels.rows, kernels.tokens, kernels.trains_weights) == (3, 3 * 2048, False)
    assert kernels.adapter is not None
    assert kernels.adapter.targets == frozenset({"q_proj", "v_proj"})  # peft's default for llama
    assert (kernels.adapter.dropout, kernels.adapter.element_bytes, kernels.adapter.casts_input) == (True, 4, True)
    assert block_kernels(eight_billion(), job.shape.blocks[0]).adapter is None


def test_under_autocast_4_bit_layers_leave_the_adapters_input_alone(eight_billion: Make) -> None:
    for autocast in (True, False):
        job = eight_billion(**QLORA, precision__autocast=autocast)
        adapter = block_kernels(job, job.shape.blocks[0]).adapter
        assert adapter is not None and adapter.casts_input is not autocast


def test_prefix_tuning_adds_its_rank_of_keys(eight_billion: Make) -> None:
    job = eight_billion(method__kind="prefix_tuning", method__rank=20)
    assert block_kernels(job, job.shape.blocks[0]).extra_keys == 20


def test_habits_of_the_loss(eight_billion: Make) -> None:
    habit = loss_habit(eight_billion())
    assert (habit.kernel, habit.input_bytes, habit.copies_shifted, habit.holds_logits, habit.trains_head) == (
        "standard",
        4,
        False,
        True,
        True,
    )
    assert not loss_habit(eight_billion(method__kind="lora")).trains_head
    assert loss_habit(eight_billion(method__kind="lora", method__train_modules=["lm_head"])).trains_head
    old = loss_habit(eight_billion(step__framework_version="4.45.0"))
    assert (old.copies_shifted, old.holds_logits) == (True, False)
    assert not loss_habit(eight_billion(step__framework="torchtune")).holds_logits


@pytest.mark.parametrize(
    ("keys", "stored"),
    [
        ({"precision__weights": "float32"}, 4),
        ({"precision__weights": "float32", "layout__strategy": "fsdp", "machine__gpus": 8}, 2),  # as they are gathered
        (QLORA, 4),  # what is not packed was upcast
    ],
)
def test_bytes_of_weights_as_a_block_reads_them(eight_billion: Make, keys: dict[str, Any], stored: int) -> None:
    job = eight_billion(**keys)
    assert block_kernels(job, job.shape.blocks[0]).stored == stored
