"""Decoders of Llama's make: RMS norms before attention and a gated feed-forward layer, rotary positions.

Defaults and modules: the configuration and modelling files of transformers 5.23 for each model type.
"""

from __future__ import annotations

from fullstep.models.architecture import (
    POST_NORM,
    SANDWICH_NORM,
    Architecture,
    AttentionPlan,
    FeedForwardPlan,
    QueryKeyNorm,
)

LLAMA_DEFAULTS = {
    "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
    "hidden_act": "silu", "max_position_embeddings": 2048, "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False,
    "use_sliding_window": True,
}  # fmt: skip
_BIASED = AttentionPlan(bias="attention_bias", output_bias="attention_bias")
_BIASED_FEED_FORWARD = FeedForwardPlan(bias="mlp_bias")

LLAMA = Architecture(
    model_type="llama", block_class="LlamaDecoderLayer", defaults=LLAMA_DEFAULTS, attention=_BIASED, feed_forward=_BIASED_FEED_FORWARD
)
MISTRAL = LLAMA.variant(
    "mistral",
    "MistralDecoderLayer",
    defaults={"intermediate_size": 14336, "num_key_value_heads": 8, "max_position_embeddings": 131072, "sliding_window": 4096},
    attention=AttentionPlan(windows="every"),
    feed_forward=FeedForwardPlan(),
)
QWEN2 = LLAMA.variant(
    "qwen2",
    "Qwen2DecoderLayer",
    defaults={
        "vocab_size": 151936, "intermediate_size": 22016, "num_key_value_heads": 32, "max_position_embeddings": 32768,
        "use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28,
    },
    attention=AttentionPlan(bias=True, windows="qwen"),
    feed_forward=FeedForwardPlan(),
)  # fmt: skip
QWEN3 = QWEN2.variant(
    "qwen3",
    "Qwen3DecoderLayer",
    defaults={"head_dim": 128},
    attention=AttentionPlan(bias="attention_bias", output_bias="attention_bias", norm=QueryKeyNorm(), windows="qwen"),
)
OLMO2 = LLAMA.variant(
    "olmo2",
    "Olmo2DecoderLayer",
    defaults={"vocab_size": 50304},
    attention=AttentionPlan(bias="attention_bias", output_bias="attention_bias", norm=QueryKeyNorm(span="all")),
    feed_forward=FeedForwardPlan(),
    norms=POST_NORM,
    norm_kind="rms_float32",
)
_GLM_DEFAULTS = {
    "vocab_size": 151552, "intermediate_size": 13696, "num_hidden_layers": 40, "num_key_value_heads": 2, "head_dim": 128,
    "max_position_embeddings": 131072, "attention_bias": True,
}  # fmt: skip

LLAMA_LIKE = (
    LLAMA,
    MISTRAL,
    QWEN2,
    QWEN3,
    OLMO2,
    LLAMA.variant("granite", "GraniteDecoderLayer"),
    LLAMA.variant(
        "smollm3",
        "SmolLM3DecoderLayer",
        defaults={
            "vocab_size": 128256, "hidden_size": 2048, "num_hidden_layers": 36, "num_attention_heads": 16, "num_key_value_heads": 4,
            "max_position_embeddings": 32768, "tie_word_embeddings": True, "use_sliding_window": False, "no_rope_layer_interval": 4,
        },
        attention=AttentionPlan(bias="attention_bias", output_bias="attention_bias", windows="unrotated", unrotated="no_rope_layers"),
    ),
    LLAMA.variant(
        "olmo",
        "OlmoDecoderLayer",
        defaults={"vocab_size": 50304},
        feed_forward=FeedForwardPlan(),
        norm_kind="layer",
        norm_scale=False,
    ),
    OLMO2.variant(
        "olmo3",
        "Olmo3DecoderLayer",
        defaults={"sliding_window": 4096, "sliding_window_pattern": 4},
        attention=AttentionPlan(
            bias="attention_bias", output_bias="attention_bias", norm=QueryKeyNorm(span="all"), windows="pattern"
        ),
    ),
    LLAMA.variant(
        "glm",
        "GlmDecoderLayer",
        defaults=_GLM_DEFAULTS,
        attention=AttentionPlan(bias="attention_bias", rotary=0.5),
        feed_forward=FeedForwardPlan(gate_up="gate_up_proj"),
    ),
    LLAMA.variant(
        "glm4",
        "Glm4DecoderLayer",
        defaults=_GLM_DEFAULTS,
        attention=AttentionPlan(bias="attention_bias", rotary=0.5),
        feed_forward=FeedForwardPlan(gate_up="gate_up_proj"),
        norms=SANDWICH_NORM,
    ),
    LLAMA.variant(
        "phi3",
        "Phi3DecoderLayer",
        defaults={
            "vocab_size": 32064, "hidden_size": 3072, "intermediate_size": 8192, "max_position_embeddings": 4096, "resid_pdrop": 0.0,
        },
        attention=AttentionPlan(fused="qkv_proj", windows="every"),
        feed_forward=FeedForwardPlan(gate_up="gate_up_proj"),
    ),
)  # fmt: skip
