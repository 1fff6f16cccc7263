"""Small configs of many families, and the class's own model of one."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

TOKENS = 16

_LLAMA = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512}
_BERT = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "vocab_size": 512}
_EXPERTS = {**_LLAMA, "num_local_experts": 4, "num_experts_per_tok": 2}
_LINEAR = {"linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 16, "linear_value_head_dim": 16}
_WIDTHS = {"moe_intermediate_size": 32, "shared_expert_intermediate_size": 32}

SMALL: dict[str, dict[str, Any]] = {
    "llama": {**_LLAMA, "num_hidden_layers": 8},
    "gemma2": {**_LLAMA, "num_hidden_layers": 12, "head_dim": 16},
    "gemma3": {"text_config": {**_LLAMA, "num_hidden_layers": 8, "head_dim": 16, "sliding_window": 32}},
    "gpt_neo": {"hidden_size": 64, "num_layers": 12, "num_heads": 4, "vocab_size": 512, "attention_types": [[["global", "local"], 6]]},
    "bloom": {"hidden_size": 64, "n_layer": 8, "n_head": 4, "vocab_size": 512},
    "bart": {"d_model": 64, "decoder_ffn_dim": 128, "decoder_attention_heads": 4, "vocab_size": 512, "decoder_layers": 8},
    "bert": {**_BERT, "num_hidden_layers": 8, "is_decoder": True},
    "xlm": {"emb_dim": 64, "n_layers": 6, "n_heads": 4, "vocab_size": 512},
    "git": {**_BERT, "num_hidden_layers": 5},
    "jetmoe": {**_EXPERTS, "kv_channels": 16, "num_hidden_layers": 8},
    "diffllama": {**_LLAMA, "num_hidden_layers": 8},
    "zamba2": {
        **_LLAMA, "num_key_value_heads": 4, "num_hidden_layers": 12, "mamba_d_state": 8, "n_mamba_heads": 4, "chunk_size": 16,
        "layers_block_type": ["mamba", "hybrid"] * 6,
    },
    "qwen3_next": {**_EXPERTS, **_LINEAR, **_WIDTHS, "num_hidden_layers": 24, "head_dim": 16, "num_experts": 4},
    "recurrent_gemma": {**_LLAMA, "num_hidden_layers": 17, "lru_width": 64, "attention_window_size": 32},
}  # fmt: skip


def small(model_type: str) -> dict[str, Any]:
    return {"model_type": model_type, **SMALL[model_type]}


def sheet(config: dict[str, Any]) -> dict[str, Any]:
    return {"model": {"config": config}, "batch": {"sequence_tokens": TOKENS}, "method": {"kind": "full"}}


def of_class(config: dict[str, Any]) -> Any:
    """The class's own model, built the ordinary way on the meta device."""
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(AutoConfig.for_model(**config).get_text_config())
