"""Small models of the real classes, with just enough blocks that a period or a few are left out, and what could make blocks unlike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fullstep.ledger import Trace

Traced = Callable[..., Trace]
LLAMA = {
    "model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 2,
    "num_hidden_layers": 6, "vocab_size": 512, "max_position_embeddings": 256,
}  # fmt: skip
_GPT2 = {"model_type": "gpt2", "n_embd": 64, "n_layer": 6, "n_head": 4, "vocab_size": 320, "n_positions": 256}
_GEMMA2 = LLAMA | {"model_type": "gemma2", "num_hidden_layers": 11, "head_dim": 64, "sliding_window": 64}
_DEEPSEEK = LLAMA | {
    "model_type": "deepseek_v3", "num_hidden_layers": 8, "num_key_value_heads": 4, "first_k_dense_replace": 2, "moe_intermediate_size": 64,
    "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1, "q_lora_rank": 32,
    "kv_lora_rank": 32, "qk_rope_head_dim": 16, "qk_nope_head_dim": 16, "v_head_dim": 32,
}  # fmt: skip
_QWEN_MIXED = LLAMA | {
    "model_type": "qwen2_moe", "num_hidden_layers": 11, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 64, "decoder_sparse_step": 2,
}  # fmt: skip
_FSDP = {"layout.strategy": "fsdp", "machine.gpus": 4}
_RECOMPUTED = {"step.activation_checkpointing": "full"}

CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "one kind": (LLAMA | {"num_hidden_layers": 9}, {}),
    "tied embeddings, recomputed, accumulated": (LLAMA | {"tie_word_embeddings": True}, {**_RECOMPUTED, "batch.accumulation": 2}),
    "autocast": (_GPT2, {"precision.weights": "float32"}),
    "eager, padded, sgd": (_GPT2, {"step.attention": "eager", "batch.packed": False, "optimizer.name": "sgd_momentum"}),
    "sliding and full attention": (_GEMMA2, {"method.kind": "lora"}),
    "dense blocks before those with experts": (_DEEPSEEK, {"optimizer.name": "adamw_8bit"}),
    "dense and expert blocks in turn, recomputed": (_QWEN_MIXED, {**_RECOMPUTED, "optimizer.implementation": "fused"}),
    "lora, every other block recomputed": (LLAMA | {"num_hidden_layers": 11}, {"method.kind": "lora", "step.activation_checkpointing": 2}),
    "qlora": (LLAMA, {"method.kind": "qlora", **_RECOMPUTED}),
    "dora, selective": (LLAMA, {"method.kind": "dora", "step.activation_checkpointing": "selective"}),
    "fsdp, recomputed": (LLAMA, {**_FSDP, **_RECOMPUTED}),
    "fsdp without sync and reshard": (
        LLAMA, {**_FSDP, "layout.reshard_after_forward": False, "layout.sync_every_micro_batch": False, "batch.accumulation": 2},
    ),
    "hsdp, one by one": (
        LLAMA, {"layout.strategy": "hsdp", "machine.gpus": 4, "machine.nodes": 2, "optimizer.implementation": "single"},
    ),
    "adafactor": (_GPT2, {"optimizer.name": "adafactor"}),
    "ddp": (LLAMA, {"layout.strategy": "ddp", "machine.gpus": 4}),
    "lora of the feed-forward alone, whose first block keeps no angles": (
        LLAMA | {"num_hidden_layers": 8}, {"method.kind": "lora", "method.targets": ["up_proj", "down_proj"]},
    ),
    "qlora under fsdp1": (
        LLAMA | {"num_hidden_layers": 8},
        {"method.kind": "qlora", "precision.weights": "bfloat16", **_FSDP, "layout.implementation": "fsdp1", **_RECOMPUTED},
    ),
    "muon": (LLAMA, {"optimizer.name": "muon"}),
    "lion, parameter by parameter": (_GPT2, {"optimizer.name": "lion", "step.gradients_cleared": "before_backward"}),
}  # fmt: skip


def worksheet_of(config: dict[str, Any], keys: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"model": {"config": config}, "batch": {"sequence_tokens": 128}}
    for key, value in keys.items():
        section, _, name = key.partition(".")
        found.setdefault(section, {})[name] = value
    return found


QUICK = (
    "one kind", "autocast", "sliding and full attention", "dense and expert blocks in turn, recomputed",
    "lora, every other block recomputed", "qlora", "fsdp, recomputed", "ddp",
)  # fmt: skip
"""of each mechanism one; the others are slow_full_depth.py's"""


def require_equal(name: str, traced: Traced) -> None:
    """Fails where the trace of a few blocks is not that of all of them."""
    worksheet = worksheet_of(*CASES[name])
    short, whole = traced(worksheet), traced(worksheet, full_depth=True)
    assert short.blocks_traced < short.blocks == whole.blocks == whole.blocks_traced
    assert short.notes == whole.notes
    of_the_run = {"blocks_traced", "operations", "seconds"}
    for field in set(Trace._fields) - of_the_run:
        assert getattr(short, field) == getattr(whole, field), field
