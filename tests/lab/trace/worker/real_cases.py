"""Steps small enough to be run for real on two cores: models, methods, precisions, optimizers and layouts."""

from __future__ import annotations

from typing import Any

Worksheet = dict[str, Any]
_SIZES: Worksheet = {
    "hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 8,
    "head_dim": 32, "vocab_size": 8000, "max_position_embeddings": 2048, "tie_word_embeddings": False, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_NARROW: Worksheet = {"hidden_size": 128, "intermediate_size": 256, "head_dim": 16}
_GPT2: Worksheet = {
    "model_type": "gpt2", "n_embd": 256, "n_layer": 2, "n_head": 8, "vocab_size": 8000, "n_positions": 1024, "resid_pdrop": 0.1,
    "embd_pdrop": 0.1, "attn_pdrop": 0.0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_EXPERTS: Worksheet = {
    "num_experts": 8, "num_local_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 128, "decoder_sparse_step": 1,
}  # fmt: skip
_MLA: Worksheet = {
    "model_type": "deepseek_v3", "kv_lora_rank": 64, "q_lora_rank": 96, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32,
    "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1,
    "moe_intermediate_size": 192, "num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 16,
}  # fmt: skip
FLOAT32 = {"weights": "float32", "compute": "float32", "autocast": False}
BFLOAT16 = {"weights": "bfloat16", "compute": "bfloat16", "autocast": False}
AUTOCAST = {"weights": "float32", "compute": "bfloat16", "autocast": True}
_LORA = {"kind": "lora", "rank": 8, "targets": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]}


def case(
    model_type: str = "llama", *, sizes: Worksheet | None = None, rows: int = 2, tokens: int = 80, precision: Worksheet = FLOAT32,
    **sections: Any,
) -> Worksheet:  # fmt: skip
    """A worksheet. ``sections``: of it, laid over those here."""
    config = dict(_GPT2) if model_type == "gpt2" else {"model_type": model_type, **_SIZES, **(sizes or {})}
    worksheet: Worksheet = {
        "model": {"config": config},
        "precision": precision,
        "batch": {"sequence_tokens": tokens, "micro_batch": rows},
        "optimizer": {"name": "adamw", "implementation": "foreach"},
    }
    for name, section in sections.items():
        worksheet[name] = {**worksheet.get(name, {}), **section}
    return worksheet


def _short(model_type: str = "llama", **keys: Any) -> Worksheet:
    """Products of bfloat16 numbers are slow on a processor."""
    return case(model_type, **{"rows": 2, "tokens": 48, "precision": BFLOAT16, **keys})


_GQA = {"num_key_value_heads": 2}
_TIED = {"tie_word_embeddings": True}
_CHECKPOINTED = {"activation_checkpointing": "full"}

SINGLE: dict[str, Worksheet] = {
    "dense": case(),
    "grouped queries": case(sizes=_GQA),
    "tied": case(sizes=_TIED),
    "biases": case("qwen2", sizes=_GQA),
    "query and key norms": case("qwen3", sizes=_GQA),
    "sliding and full attention": case("gemma3_text", sizes=_GQA | _TIED | {"sliding_window": 64}, rows=1),
    "layer norms, dropout": case("gpt2"),
    "parallel blocks": case("gpt_neox"),
    "eager attention": case(step={"attention": "eager"}),
    "padded rows": case(sizes=_GQA, batch={"packed": False}),
    "checkpointing": case(step=_CHECKPOINTED),
    "accumulation, tied": case(sizes=_TIED, batch={"accumulation": 2}),
    "accumulation, checkpointing": case(batch={"accumulation": 2}, step=_CHECKPOINTED),
    "gradients cleared late": case(step={"gradients_cleared": "before_backward"}),
    "outputs kept": case(step={"keeps_outputs": True}),
    "adamw, tensor by tensor": case(optimizer={"implementation": "single"}),
    "adamw, fused": case(optimizer={"implementation": "fused"}),
    "sgd": case(optimizer={"name": "sgd"}),
    "sgd with momentum": case(optimizer={"name": "sgd_momentum"}),
    "adafactor": case(optimizer={"name": "adafactor", "implementation": "single"}),
    "adam": case(optimizer={"name": "adam", "implementation": "foreach"}),
    "muon": case(sizes=_NARROW, optimizer={"name": "muon", "implementation": "single"}),
    "mixture of experts": case("qwen3_moe", sizes=_GQA | _EXPERTS),
    "experts, checkpointing": case("mixtral", sizes=_GQA | _EXPERTS | {"intermediate_size": 128}, step=_CHECKPOINTED),
    "experts one by one": case("qwen3_moe", sizes=_GQA | _EXPERTS | {"experts_implementation": "eager"}),
    "latent attention and experts": case("deepseek_v3", sizes=_MLA),
    "lora": case(method=_LORA),
    "lora with dropout, checkpointing": case(method=_LORA | {"dropout": 0.1}, step=_CHECKPOINTED),
    "dora": case(method=_LORA | {"kind": "dora"}),
    "bf16": _short(sizes=_GQA),
    "bf16, checkpointing": _short(step=_CHECKPOINTED),
    "bf16, lora": _short(method=_LORA),
    "bf16, experts": _short("qwen3_moe", sizes=_GQA | _EXPERTS),
    "autocast": _short(precision=AUTOCAST),
    "autocast, checkpointing": _short(precision=AUTOCAST, step=_CHECKPOINTED),
    "autocast, accumulation": _short(precision=AUTOCAST, batch={"accumulation": 2}, sizes=_TIED),
    "autocast, lora": _short(precision=AUTOCAST, method=_LORA),
}
"""on one GPU"""

DATA_DEPENDENT = ("experts one by one",)
"""sizes of tensors follow from where a router sends the tokens; the trace takes every expert's share to be the same"""
_TWO = {"gpus": 2}
SPREAD: dict[str, Worksheet] = {
    "ddp": case(layout={"strategy": "ddp"}, machine=_TWO),
    "ddp, accumulation": case(layout={"strategy": "ddp"}, machine=_TWO, batch={"accumulation": 2}),
    "ddp, checkpointing, tied": case(sizes=_TIED, layout={"strategy": "ddp"}, machine=_TWO, step=_CHECKPOINTED),
    "ddp, autocast": _short(precision=AUTOCAST, layout={"strategy": "ddp"}, machine=_TWO),
    "fsdp": case(layout={"strategy": "fsdp"}, machine=_TWO),
    "fsdp, not resharded": case(layout={"strategy": "fsdp", "reshard_after_forward": False}, machine=_TWO),
    "fsdp, checkpointing": case(layout={"strategy": "fsdp"}, machine=_TWO, step=_CHECKPOINTED),
    "fsdp, accumulation": case(layout={"strategy": "fsdp"}, machine=_TWO, batch={"accumulation": 2}),
    "fsdp, bf16 compute": _short(precision=AUTOCAST | {"autocast": False, "reduce": "float32"}, layout={"strategy": "fsdp"}, machine=_TWO),
    "fsdp, lora": case(layout={"strategy": "fsdp"}, machine=_TWO, method=_LORA),
}
"""over two ranks"""
