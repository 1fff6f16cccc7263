"""Decoders with latent attention, and mixtures with shared experts after DeepSeek.

Defaults and modules: the configuration and modelling files of transformers 5.23 for each model type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fullstep.models.architecture import AttentionPlan, ExpertsPlan, FeedForwardPlan, QueryKeyNorm
from fullstep.models.architectures.llama import LLAMA
from fullstep.models.reader import ConfigReader


def _rounded_down(reader: ConfigReader) -> Mapping[str, Any]:
    """Without ``head_dim`` the class of GLM-4.5 divides and rounds down."""
    return {"head_dim": max(1, reader.whole("hidden_size") // reader.whole("num_attention_heads"))}


_ROUTED = ExpertsPlan(count="n_routed_experts", shared_count="n_shared_experts", sparse="first_dense")
_NORMED = AttentionPlan(bias="attention_bias", output_bias="attention_bias", norm=QueryKeyNorm())

DEEPSEEK_V2 = LLAMA.variant(
    "deepseek_v2",
    "DeepseekV2DecoderLayer",
    defaults={
        "vocab_size": 102400, "first_k_dense_replace": 0, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 64, "n_shared_experts": 2, "moe_intermediate_size": 1407,
    },
    attention=AttentionPlan(latent=True, bias="attention_bias", output_bias="attention_bias"),
    experts=_ROUTED,
)  # fmt: skip
DEEPSEEK_V3 = DEEPSEEK_V2.variant(
    "deepseek_v3",
    "DeepseekV3DecoderLayer",
    defaults={
        "vocab_size": 129280, "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048, "num_hidden_layers": 61,
        "num_attention_heads": 128, "num_key_value_heads": 128, "n_shared_experts": 1, "n_routed_experts": 256,
        "num_experts_per_tok": 8, "first_k_dense_replace": 3, "max_position_embeddings": 4096,
    },
    feed_forward=FeedForwardPlan(),
)  # fmt: skip

DEEPSEEK_LIKE = (
    DEEPSEEK_V2,
    DEEPSEEK_V3,
    DEEPSEEK_V3.variant(
        "glm4_moe_lite",
        "Glm4MoeLiteDecoderLayer",
        defaults={
            "vocab_size": 154880, "hidden_size": 2048, "intermediate_size": 10240, "moe_intermediate_size": 1536,
            "num_hidden_layers": 47, "num_attention_heads": 20, "num_key_value_heads": 20, "n_routed_experts": 64,
            "q_lora_rank": 768, "v_head_dim": 256, "qk_nope_head_dim": 192, "num_experts_per_tok": 4, "first_k_dense_replace": 1,
            "max_position_embeddings": 202752,
        },
    ),
    DEEPSEEK_V3.variant(
        "youtu",
        "YoutuDecoderLayer",
        defaults={
            "vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 32, "num_attention_heads": 16,
            "num_key_value_heads": 16, "max_position_embeddings": 131072, "tie_word_embeddings": True,
        },
        experts=None,
    ),
    DEEPSEEK_V2.variant(
        "minicpm3",
        "MiniCPM3DecoderLayer",
        defaults={
            "vocab_size": 73448, "hidden_size": 2560, "intermediate_size": 6400, "num_hidden_layers": 62, "num_attention_heads": 40,
            "num_key_value_heads": 40, "kv_lora_rank": 256, "q_lora_rank": 768, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32,
            "v_head_dim": None, "max_position_embeddings": 32768, "tie_word_embeddings": True,
        },
        experts=None,
    ),
    LLAMA.variant(
        "dots1",
        "Dots1DecoderLayer",
        defaults={
            "vocab_size": 152064, "hidden_size": 4608, "intermediate_size": 10944, "moe_intermediate_size": 1408,
            "num_hidden_layers": 62, "num_key_value_heads": 32, "first_k_dense_replace": 0, "sliding_window": 4096,
            "max_window_layers": 62,
        },
        attention=AttentionPlan(
            bias="attention_bias", output_bias="attention_bias", norm=QueryKeyNorm(), windows="qwen"
        ),
        feed_forward=FeedForwardPlan(),
        experts=_ROUTED,
    ),
    LLAMA.variant(
        "glm4_moe",
        "Glm4MoeDecoderLayer",
        defaults={
            "vocab_size": 151552, "intermediate_size": 10944, "num_hidden_layers": 46, "num_attention_heads": 96,
            "num_key_value_heads": 8, "max_position_embeddings": 131072, "moe_intermediate_size": 1408, "num_experts_per_tok": 8,
            "n_shared_experts": 1, "n_routed_experts": 128, "first_k_dense_replace": 1, "use_qk_norm": False,
        },
        derive=_rounded_down,
        attention=AttentionPlan(bias="attention_bias", rotary=0.5, norm=QueryKeyNorm(when="use_qk_norm")),
        feed_forward=FeedForwardPlan(),
        experts=_ROUTED,
    ),
    LLAMA.variant(
        "solar_open",
        "SolarOpenDecoderLayer",
        defaults={
            "vocab_size": 196608, "num_hidden_layers": 48, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128,
            "max_position_embeddings": 131072, "moe_intermediate_size": 1280, "num_experts_per_tok": 8, "n_shared_experts": 1,
            "n_routed_experts": 128,
        },
        attention=AttentionPlan(bias="attention_bias"),
        feed_forward=FeedForwardPlan(),
        experts=ExpertsPlan(count="n_routed_experts", shared_count="n_shared_experts"),
    ),
    LLAMA.variant(
        "hy_v3",
        "HYV3DecoderLayer",
        defaults={
            "vocab_size": 120832, "intermediate_size": 13312, "num_hidden_layers": 80, "num_attention_heads": 64,
            "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 131072, "num_experts": 192,
            "num_experts_per_tok": 8, "num_shared_experts": 1, "moe_intermediate_size": 1536, "first_k_dense_replace": 1,
        },
        attention=_NORMED,
        experts=ExpertsPlan(shared_count="num_shared_experts", sparse="first_dense"),
    ),
)  # fmt: skip
