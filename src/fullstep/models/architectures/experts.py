"""Mixture-of-experts decoders of Llama's make.

Defaults and modules: the configuration and modelling files of transformers 5.23 for each model type.
"""

from __future__ import annotations

from fullstep.models.architecture import AttentionPlan, ExpertsPlan, FeedForwardPlan, QueryKeyNorm
from fullstep.models.architectures.llama import LLAMA, MISTRAL, QWEN2

MIXTRAL = MISTRAL.variant(
    "mixtral",
    "MixtralDecoderLayer",
    defaults={"sliding_window": None, "num_experts_per_tok": 2, "num_local_experts": 8},
    experts=ExpertsPlan(count="num_local_experts", width="intermediate_size"),
)
QWEN2_MOE = QWEN2.variant(
    "qwen2_moe",
    "Qwen2MoeDecoderLayer",
    defaults={
        "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 24, "num_attention_heads": 16, "num_key_value_heads": 16,
        "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632, "num_experts_per_tok": 4, "num_experts": 60,
        "decoder_sparse_step": 1, "qkv_bias": True,
    },
    attention=AttentionPlan(bias="qkv_bias", windows="qwen_moe"),
    experts=ExpertsPlan(shared_width="shared_expert_intermediate_size", shared_router="shared_expert_gate", sparse="qwen"),
)  # fmt: skip
QWEN3_MOE = QWEN2.variant(
    "qwen3_moe",
    "Qwen3MoeDecoderLayer",
    defaults={
        "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 24, "num_key_value_heads": 4,
        "moe_intermediate_size": 768, "num_experts_per_tok": 8, "num_experts": 128, "decoder_sparse_step": 1,
    },
    keys={"num_experts": "num_local_experts"},
    attention=AttentionPlan(bias="attention_bias", output_bias="attention_bias", norm=QueryKeyNorm(), windows="every"),
    experts=ExpertsPlan(sparse="qwen"),
)  # fmt: skip

EXPERTS = (
    MIXTRAL,
    QWEN2_MOE,
    QWEN3_MOE,
    LLAMA.variant(
        "granitemoe",
        "GraniteMoeDecoderLayer",
        defaults={"num_local_experts": 8, "num_experts_per_tok": 2},
        feed_forward=FeedForwardPlan(),
        experts=ExpertsPlan(count="num_local_experts", width="intermediate_size", router="router"),
    ),
    LLAMA.variant(
        "gpt_oss",
        "GptOssDecoderLayer",
        defaults={
            "vocab_size": 201088, "hidden_size": 2880, "intermediate_size": 2880, "num_hidden_layers": 36, "num_attention_heads": 64,
            "num_key_value_heads": 8, "head_dim": 64, "max_position_embeddings": 131072, "sliding_window": 128, "attention_bias": True,
            "num_local_experts": 128, "num_experts_per_tok": 4,
        },
        attention=AttentionPlan(bias="attention_bias", output_bias="attention_bias", sinks=True, windows="alternate"),
        experts=ExpertsPlan(count="num_local_experts", width="intermediate_size", router="router", router_bias=True, bias=True),
    ),
)  # fmt: skip
