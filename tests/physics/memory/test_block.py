"""What whole blocks keep for backward, against formulas checked to the byte on traces of the real classes (transformers 5.23).

h: width of the stream, q and k: of all query and of all key heads, f: of the feed-forward layer, H: heads, r: rank, S: length.
All per token. Llama-3.1-8B: h = q = 4096, k = 1024, f = 14336, H = 32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fullstep.job import Job, complete, worksheet_from_mapping
from fullstep.physics.memory.block import block_profile
from fullstep.physics.memory.choices import block_kernels
from fullstep.physics.memory.tape import Profile

EightBillion = Callable[..., Job]

h, q, k, f, H, r, S = 4096, 4096, 1024, 14336, 32, 16, 4096
FLASH = 4 * q + 4 * k + 4 * H  # q, k, v, output in 16 bits; log-sum-exp
ROOTS = 8
"""two inverse roots per row"""
LORA = {"method__kind": "lora", "method__targets": "all-linear"}
QV = {"method__kind": "lora", "method__targets": ["q_proj", "v_proj"]}
QKVO = {"method__kind": "lora", "method__targets": ["q_proj", "k_proj", "v_proj", "o_proj"]}
PURE = {"precision__autocast": False}
DROPS = {"method__dropout": 0.05}
QLORA = {"method__kind": "qlora", "method__targets": "all-linear"}
DORA = {"method__kind": "dora", "method__targets": "all-linear"}
OUTPUTS = q + 2 * k + h + 2 * f + h
"""of all seven linears"""

PER_TOKEN: dict[str, tuple[dict[str, Any], float]] = {
    "full": ({}, 16 * h + FLASH + 8 * f + ROOTS),
    "flash": ({"step__attention": "flash"}, 16 * h + FLASH + 8 * f + ROOTS),
    "eager": ({"step__attention": "eager"}, 16 * h + 2 * q + 4 * q + 2 * q + 6 * H * S + 8 * f + ROOTS),
    "padded": ({"batch__packed": False}, 16 * h + 8 * q + 4 * H + 2 * S + 8 * f + ROOTS),
    "float32 under autocast": ({"precision__weights": "float32"}, 26 * h + FLASH + 8 * f + ROOTS),
    "lora": (LORA, 18 * h + 2 * q + FLASH + 8 * f + ROOTS + 14 * r),
    "lora, dropout": (LORA | DROPS, 18 * h + 2 * q + FLASH + 8 * f + ROOTS + 14 * r + 5 * h + q + f),
    "lora without autocast": (LORA | PURE, 28 * h + 4 * q + FLASH + 10 * f + ROOTS + 28 * r),
    "lora without autocast, dropout": (LORA | PURE | DROPS, 28 * h + 4 * q + FLASH + 10 * f + ROOTS + 28 * r + 5 * h + q + f),
    "bfloat16 adapters": (LORA | PURE | {"precision__adapters": "bfloat16"}, 12 * h + FLASH + 8 * f + ROOTS + 14 * r),
    "lora on q and v": (QV, 12 * h + FLASH + 6 * f + ROOTS + 4 * r),
    "lora on q and v without autocast": (QV | PURE, 16 * h + FLASH + 6 * f + ROOTS + 8 * r),
    "lora on attention": (QKVO, 14 * h + 2 * q + FLASH + 6 * f + ROOTS + 8 * r),
    "lora on attention without autocast": (QKVO | PURE, 20 * h + 4 * q + FLASH + 6 * f + ROOTS + 16 * r),
    "qlora, the rest in float32": (QLORA, 18 * h + FLASH + 14 * f + ROOTS + 14 * r),
    "qlora, the rest in bfloat16": (QLORA | {"method__upcast_unquantized": False}, 12 * h + FLASH + 8 * f + ROOTS + 14 * r),
    "dora": (DORA, 18 * h + 2 * q + FLASH + 8 * f + ROOTS + 14 * r + 4 * OUTPUTS),
    "dora without autocast": (DORA | PURE, 28 * h + 4 * q + FLASH + 10 * f + ROOTS + 28 * r + 6 * OUTPUTS),
    "ia3": ({"method__kind": "ia3"}, 8 * h + FLASH + 6 * f + ROOTS + 4 * f + 4 * k),
    "prefix of 20": (
        {"method__kind": "prefix_tuning", "method__rank": 20},
        8 * h + 2 * q + 4 * q * (S + 20) / S + 2 * q + 2 * (S + 20) + 4 * H + 6 * f + ROOTS,
    ),
}


def profile_of(job: Job, kind: int = 0) -> Profile:
    block = job.shape.blocks[kind]
    return block_profile(block, block_kernels(job, block), job.shape.hidden)


@pytest.mark.parametrize("case", PER_TOKEN)
def test_llama_keeps_to_the_byte(eight_billion: EightBillion, case: str) -> None:
    keys, per_token = PER_TOKEN[case]
    assert profile_of(eight_billion(batch__sequence_tokens=S, **keys)).saved == S * per_token


def test_figures_of_the_traces(eight_billion: EightBillion) -> None:
    """The same as numbers, bytes per token as the traces have them (without 640 of low-precision copies of the adapters)."""
    found = {case: profile_of(eight_billion(batch__sequence_tokens=S, **PER_TOKEN[case][0])).saved / S for case in PER_TOKEN}
    assert found["full"] == 200_840
    assert found["float32 under autocast"] == 241_800
    assert found["lora"] == 217_448
    assert found["qlora, the rest in float32"] == 295_912 - 640
    assert found["eager"] == 999_432
    assert found["padded"] == 221_320
    assert found["prefix of 20"] == 160_000


def test_backward_is_at_its_worst_in_the_gated_product(eight_billion: EightBillion) -> None:
    """saved + 4 f + 2 h: the product has gone, its gradient and those of its two factors and of the stream are there."""
    saved = 16 * h + FLASH + 8 * f + ROOTS
    gradient_of_down = 2 * h * f  # it is there by then, for good
    assert profile_of(eight_billion(batch__sequence_tokens=S)).backward_peak == S * (saved + 4 * f + 2 * h) + gradient_of_down


def test_a_block_of_adapters_leaves_their_gradients(eight_billion: EightBillion) -> None:
    elements = r * (h + q + 2 * (h + k) + q + h + 2 * (h + f) + f + h)
    assert profile_of(eight_billion(**LORA)).weight_gradient == 4 * elements


CONFIGS: dict[str, tuple[dict[str, Any], float]] = {
    # layer norm: input 2, output 2, two statistics; query, key and value in one product; five tensors of gelu_new; dropout masks
    "gpt2": ({"n_embd": 1600, "n_head": 25, "n_layer": 3, "n_positions": 2048}, 8 * 1600 + 8 * 1600 + 4 * 25 + 10 * 6400 + 2 * 1600 + 16),
    # both norms read one input; the rotated query and key are copies, and flash's output is kept beside its contiguous copy
    "gpt_neox": (
        {"hidden_size": 4096, "intermediate_size": 16384, "num_attention_heads": 32, "num_hidden_layers": 3},
        6 * 4096 + 6 * 4096 + 4 * 4096 + 2 * 2 * 4096 + 4 * 32 + 4 * 16384 + 16,
    ),
    "qwen3": (  # norms of query and key: float32 copy 4 and normalised 2 per element, an inverse root per head
        {"hidden_size": 4096, "intermediate_size": 12288, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128},
        16 * 4096 + 4 * 4096 + 4 * 1024 + 8 * 12288 + 4 * 32 + 8 + 6 * 4096 + 6 * 1024 + 4 * 32 + 4 * 8,
    ),
    "gemma": (  # scaled in float32: 4 + 4 + 2 per norm
        {"hidden_size": 3072, "intermediate_size": 24576, "num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 256},
        20 * 3072 + 8 * 4096 + 8 * 24576 + 4 * 16 + 8,
    ),
    "opt": (  # relu's output alone; the query is scaled, which makes it a tensor of its own; dropout masks
        {"hidden_size": 4096, "ffn_dim": 16384, "num_attention_heads": 32, "num_hidden_layers": 3, "max_position_embeddings": 4096},
        8 * 4096 + 8 * 4096 + 4 * 32 + 2 * 16384 + 2 * 4096 + 16,
    ),
}
"""bfloat16, no mask, 2,048 tokens; of the same traces"""


@pytest.mark.parametrize("model_type", CONFIGS)
def test_other_blocks_keep(model_type: str) -> None:
    config, per_token = CONFIGS[model_type]
    mapping = {"model": {"config": {"model_type": model_type} | config}, "batch": {"sequence_tokens": 2048}}
    found = profile_of(complete(worksheet_from_mapping(mapping, model_type)))
    assert found.saved / 2048 == pytest.approx(per_token, rel=0.001)


def mixture(**batch: int) -> Job:
    config = {
        "model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8,
        "num_local_experts": 8, "num_experts_per_tok": 2, "num_hidden_layers": 2,
    }  # fmt: skip
    return complete(worksheet_from_mapping({"model": {"config": config}, "batch": batch}, "mixtral"))


def test_experts_keep_rows_times_experts_per_token() -> None:
    """Two rows per token: gathered input 2 h, gate and up 4 m, activation 2 m, product 2 m, output 2 h each; the router's shares.

    The dense feed-forward layer's 8 f, its input's 2 h among the norms', have their place.
    """
    tokens = 2048
    found = profile_of(mixture(sequence_tokens=tokens)).saved / tokens
    experts = 2 * (2 * h + 8 * 14336 + 2 * h) + 4 * 8
    assert found == pytest.approx(16 * h + FLASH + ROOTS + experts, rel=1e-3)


def test_one_expert_after_another_keeps_as_much_and_works_on_less() -> None:
    job = mixture(sequence_tokens=2048)
    block = job.shape.blocks[0]
    kernels = block_kernels(job, block)
    grouped = block_profile(block, kernels, job.shape.hidden)
    looped = block_profile(block, kernels._replace(stacks_experts=False), job.shape.hidden)
    assert looped.saved == pytest.approx(grouped.saved, rel=0.01)
    assert looped.forward_peak < grouped.forward_peak
    assert looped.forward_peak_unsaved < grouped.forward_peak_unsaved
    assert looped.weight_gradient == grouped.weight_gradient


def test_litgpt_joins_queries_keys_and_values_and_pads_its_adapter() -> None:
    """litgpt 0.5.7's own Llama-2-7b-hf (lora_query, lora_value, dropout 0.05) saves 176,904 bytes per token of 1,024 in each block. 96 of
    them are an index of 8,192, two norm weights in float32 and a random state, which do not grow with the tokens and are not counted."""
    h, f, heads, rank = 4096, 11008, 32, 8
    norms = 2 * (4 * h + 4)  # float32 input and its scale
    adapter = 2 * h + h + 2 * 2 * rank + 2 * 2 * h  # dropout's output and mask, A's output, B's output before the padding
    heads_kept = 2 * 3 * h + 2 * 2 * h + 2 * h + 4 * heads  # the joined projection, whose part the values are; rotated; output; log-sum-exp
    gated = 3 * 2 * f
    config = {"model_type": "llama", "hidden_size": h, "intermediate_size": f, "num_attention_heads": heads, "num_key_value_heads": heads}
    worksheet = {
        "model": {"config": config | {"num_hidden_layers": 2}},
        "method": {"kind": "lora", "rank": rank, "targets": ["q_proj", "v_proj"], "dropout": 0.05},
        "precision": {"adapters": "bfloat16"},
        "batch": {"sequence_tokens": 1024, "micro_batch": 1},
        "step": {"framework": "litgpt"},
    }
    job = complete(worksheet_from_mapping(worksheet, "litgpt"))
    block = job.shape.blocks[0]
    found = block_profile(block, block_kernels(job, block), job.shape.hidden)
    assert found.saved / 1024 == norms + adapter + heads_kept + gated == 176_904 - 96
