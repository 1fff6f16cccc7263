"""Mixture-of-experts decoders of Llama's make.

Defaults and modules: the configuration and modelling files of transformers 5.23 for each model type.
"""

from __future__ import annotations

from fullstep.models.architecture import POST_NORM, AttentionPlan, ExpertsPlan, FeedForwardPlan, QueryKeyNorm
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
        supports_sdpa=False,
        defaults={
            "vocab_size": 201088, "hidden_size": 2880, "intermediate_size": 2880, "num_hidden_layers": 36, "num_attention_heads": 64,
            "num_key_value_heads": 8, "head_dim": 64, "max_position_embeddings": 131072, "sliding_window": 128, "attention_bias": True,
            "num_local_experts": 128, "num_experts_per_tok": 4,
        },
        attention=AttentionPlan(
            bias="attention_bias", output_bias="attention_bias", sinks=True, windows="alternate", eager_softmax="scores"
        ),
        norm_kind="rms_float32",
        experts=ExpertsPlan(
            count="num_local_experts", width="intermediate_size", router="router", router_bias=True, bias=True, clamped=True
        ),
    ),
    LLAMA.variant(
        "granitemoe_swa",
        "GraniteMoeSWADecoderLayer",
        supports_sdpa=False,
        defaults={"num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": 128},
        attention=AttentionPlan(bias="attention_bias", output_bias="attention_bias", sinks=True, windows="first_pattern"),
        feed_forward=FeedForwardPlan(),
        experts=ExpertsPlan(count="num_local_experts", width="intermediate_size", router="router"),
    ),
    LLAMA.variant(
        "olmoe",
        "OlmoeDecoderLayer",
        defaults={
            "vocab_size": 50304, "hidden_size": 2048, "intermediate_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 16,
            "max_position_embeddings": 4096, "num_experts_per_tok": 8, "num_experts": 64,
        },
        attention=AttentionPlan(bias="attention_bias", output_bias="attention_bias", norm=QueryKeyNorm(span="all")),
        feed_forward=FeedForwardPlan(),
        experts=ExpertsPlan(width="intermediate_size"),
    ),
    LLAMA.variant(
        "flex_olmo",
        "FlexOlmoDecoderLayer",
        defaults={"vocab_size": 100352, "max_position_embeddings": 4096, "num_experts_per_tok": 5, "num_experts": 7},
        attention=AttentionPlan(bias="attention_bias", output_bias="attention_bias", norm=QueryKeyNorm(span="all")),
        feed_forward=FeedForwardPlan(),
        norms=POST_NORM,
        experts=ExpertsPlan(width="intermediate_size"),
    ),
    LLAMA.variant(
        "phimoe",
        "PhimoeDecoderLayer",
        defaults={
            "vocab_size": 32064, "intermediate_size": 6400, "num_key_value_heads": 8, "max_position_embeddings": 131072,
            "num_experts_per_tok": 2, "num_local_experts": 16, "lm_head_bias": False,
        },
        attention=AttentionPlan(bias="attention_bias", output_bias="attention_bias", windows="every"),
        feed_forward=FeedForwardPlan(),
        norm_kind="layer",
        norm_shift=True,
        head_bias="lm_head_bias",
        experts=ExpertsPlan(count="num_local_experts", width="intermediate_size", router="router", router_module=True),
    ),
    LLAMA.variant(
        "llama4_text",
        "Llama4TextDecoderLayer",
        defaults={
            "vocab_size": 202048, "hidden_size": 5120, "intermediate_size": 8192, "intermediate_size_mlp": 16384,
            "num_hidden_layers": 48, "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128,
            "max_position_embeddings": 131072, "num_experts_per_tok": 1, "num_local_experts": 16, "interleave_moe_layer_step": 1,
            "use_qk_norm": True, "no_rope_layer_interval": 4, "attention_chunk_size": 8192,
        },
        attention=AttentionPlan(
            bias="attention_bias", output_bias="attention_bias", windows="chunked", unrotated="no_rope_layers",
            norm=QueryKeyNorm(vectors=0, when="use_qk_norm", only_rotated=True),
        ),
        feed_forward=FeedForwardPlan(width="intermediate_size_mlp"),
        experts=ExpertsPlan(
            count="num_local_experts", width="intermediate_size", router="router", router_module=True, shared_width="intermediate_size",
            sparse="llama4",
        ),
    ),
    LLAMA.variant(
        "minimax_m2",
        "MiniMaxM2DecoderLayer",
        defaults={
            "vocab_size": 200064, "hidden_size": 3072, "intermediate_size": 1536, "num_hidden_layers": 62, "num_attention_heads": 48,
            "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 196608, "num_experts_per_tok": 8,
            "num_local_experts": 256,
        },
        attention=AttentionPlan(norm=QueryKeyNorm(span="all")),
        feed_forward=FeedForwardPlan(),
        experts=ExpertsPlan(count="num_local_experts", width="intermediate_size"),
    ),
    LLAMA.variant(
        "mellum",
        "MellumDecoderLayer",
        defaults={
            "vocab_size": 98304, "hidden_size": 2304, "intermediate_size": 7168, "num_hidden_layers": 28, "num_key_value_heads": 4,
            "head_dim": 128, "max_position_embeddings": 131072, "sliding_window": 1024, "moe_intermediate_size": 896,
            "num_experts_per_tok": 8, "num_experts": 64,
        },
        keys={"num_experts": "num_local_experts"},
        attention=AttentionPlan(
            bias="attention_bias", output_bias="attention_bias", norm=QueryKeyNorm(), windows="only_stated"
        ),
        feed_forward=FeedForwardPlan(),
        experts=ExpertsPlan(),
    ),
    LLAMA.variant(
        "hunyuan_v1_moe",
        "HunYuanMoEV1DecoderLayer",
        defaults={"vocab_size": 290943, "num_experts": 1, "moe_topk": 1},
        attention=AttentionPlan(bias="attention_bias", output_bias="attention_bias", norm=QueryKeyNorm()),
        feed_forward=FeedForwardPlan(),
        experts=ExpertsPlan(
            width="intermediate_size", per_token="moe_topk", router="wg", router_module=True, shared_width="intermediate_size"
        ),
    ),
    LLAMA.variant(
        "ernie4_5_moe",
        "Ernie4_5_MoeDecoderLayer",
        defaults={
            "vocab_size": 103424, "hidden_size": 2560, "intermediate_size": 12288, "num_hidden_layers": 28, "num_attention_heads": 20,
            "num_key_value_heads": 4, "max_position_embeddings": 131072, "tie_word_embeddings": True, "use_bias": False,
            "moe_intermediate_size": 1536, "moe_k": 6, "moe_num_experts": 64, "moe_num_shared_experts": 2,
            "moe_layer_start_index": 1, "moe_layer_end_index": -1, "moe_layer_interval": 1,
        },
        attention=AttentionPlan(bias="use_bias", output_bias="use_bias"),
        feed_forward=FeedForwardPlan(bias="use_bias"),
        head_bias="use_bias",
        experts=ExpertsPlan(
            count="moe_num_experts", per_token="moe_k", shared_count="moe_num_shared_experts", sparse="ernie", correction=True
        ),
    ),
    LLAMA.variant(
        "exaone_moe",
        "ExaoneMoeDecoderLayer",
        defaults={
            "vocab_size": 102400, "intermediate_size": 16384, "num_key_value_heads": 32, "sliding_window": 4096,
            "sliding_window_pattern": 4, "first_k_dense_replace": 1, "moe_intermediate_size": 1024, "num_experts": 64,
            "num_experts_per_tok": 8, "num_shared_experts": 1,
        },
        attention=AttentionPlan(norm=QueryKeyNorm(), windows="pattern", unrotated="full"),
        feed_forward=FeedForwardPlan(),
        experts=ExpertsPlan(shared_count="num_shared_experts", sparse="first_dense"),
    ),
    LLAMA.variant(
        "aria_text",
        "AriaTextDecoderLayer",
        defaults={"intermediate_size": 4096, "moe_num_experts": 8, "moe_topk": 2, "moe_num_shared_experts": 2},
        experts=ExpertsPlan(
            count="moe_num_experts", per_token="moe_topk", width="intermediate_size", router="router",
            shared_count="moe_num_shared_experts",
        ),
    ),
)  # fmt: skip
