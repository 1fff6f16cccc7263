"""Gemma and its kin, Cohere and EXAONE: tied embeddings, interleaved windows, parallel branches.

Defaults and modules: the configuration and modelling files of transformers 5.23 for each model type.
"""

from __future__ import annotations

from fullstep.models.architecture import ONE_NORM, POST_NORM, SANDWICH_NORM, AttentionPlan, FeedForwardPlan, QueryKeyNorm
from fullstep.models.architectures.llama import LLAMA

GEMMA = LLAMA.variant(
    "gemma",
    "GemmaDecoderLayer",
    defaults={
        "vocab_size": 256000, "hidden_size": 3072, "intermediate_size": 24576, "num_hidden_layers": 28, "num_attention_heads": 16,
        "num_key_value_heads": 16, "head_dim": 256, "hidden_act": "gelu_pytorch_tanh", "max_position_embeddings": 8192,
        "tie_word_embeddings": True,
    },
    feed_forward=FeedForwardPlan(),
    norm_kind="rms_float32",
)  # fmt: skip
GEMMA2 = GEMMA.variant(
    "gemma2",
    "Gemma2DecoderLayer",
    supports_sdpa=False,
    defaults={
        "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4,
        "sliding_window": 4096, "final_logit_softcapping": 30.0, "attn_logit_softcapping": 50.0,
    },
    keys={"hidden_act": "hidden_activation"},
    attention=AttentionPlan(bias="attention_bias", output_bias="attention_bias", windows="alternate"),
    norms=SANDWICH_NORM,
)  # fmt: skip
# Cohere writes its layer norm out step by step in float32 and without a shift, like an RMS norm.
COHERE = LLAMA.variant(
    "cohere",
    "CohereDecoderLayer",
    defaults={
        "vocab_size": 256000, "hidden_size": 8192, "intermediate_size": 22528, "num_hidden_layers": 40, "num_attention_heads": 64,
        "max_position_embeddings": 8192, "tie_word_embeddings": True, "use_qk_norm": False,
    },
    attention=AttentionPlan(
        bias="attention_bias", output_bias="attention_bias", norm=QueryKeyNorm(span="every_head", when="use_qk_norm")
    ),
    feed_forward=FeedForwardPlan(),
    norms=ONE_NORM,
    norm_kind="rms_float32",
    parallel_residual=True,
)  # fmt: skip

GEMMA_LIKE = (
    GEMMA,
    GEMMA2,
    GEMMA2.variant("vaultgemma", "VaultGemmaDecoderLayer", supports_sdpa=False, norms=GEMMA.norms),
    GEMMA2.variant(
        "gemma3_text",
        "Gemma3DecoderLayer",
        supports_sdpa=True,
        defaults={
            "vocab_size": 262208, "max_position_embeddings": 131072, "final_logit_softcapping": None, "attn_logit_softcapping": None,
            "sliding_window_pattern": 6,
        },
        attention=AttentionPlan(bias="attention_bias", output_bias="attention_bias", norm=QueryKeyNorm(), windows="pattern"),
    ),
    COHERE,
    COHERE.variant(
        "cohere2",
        "Cohere2DecoderLayer",
        defaults={"sliding_window": 4096, "sliding_window_pattern": 4},
        attention=AttentionPlan(bias="attention_bias", output_bias="attention_bias", windows="pattern", unrotated="full"),
    ),
    LLAMA.variant(
        "exaone4",
        "Exaone4DecoderLayer",
        defaults={
            "vocab_size": 102400, "intermediate_size": 16384, "num_key_value_heads": 32, "sliding_window": 4096,
            "sliding_window_pattern": 4,
        },
        attention=AttentionPlan(norm=QueryKeyNorm(), windows="pattern", unrotated="full"),
        feed_forward=FeedForwardPlan(),
        norms=POST_NORM,
    ),
)  # fmt: skip
