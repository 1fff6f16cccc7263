"""More decoders of Llama's make, each with a turn of its own.

Defaults and modules: the configuration and modelling files of transformers 5.23 for each model type.
"""

from __future__ import annotations

from fullstep.models.architecture import AttentionPlan, FeedForwardPlan, QueryKeyNorm
from fullstep.models.architectures.llama import LLAMA, MISTRAL

_NORMED = AttentionPlan(bias="attention_bias", output_bias="attention_bias", norm=QueryKeyNorm())
_PLAIN = FeedForwardPlan()

LLAMA_VARIANTS = (
    LLAMA.variant(
        "internlm3",
        "LlamaDecoderLayer",
        defaults={
            "vocab_size": 128512, "intermediate_size": 10240, "num_hidden_layers": 48, "num_key_value_heads": 2, "head_dim": 128,
            "max_position_embeddings": 32768,
        },
        keys={"attention_bias": "qkv_bias", "mlp_bias": "bias"},
    ),
    LLAMA.variant(
        "iquestcoder",
        "LlamaDecoderLayer",
        defaults={
            "vocab_size": 76800, "hidden_size": 5120, "intermediate_size": 27648, "num_hidden_layers": 80, "num_attention_heads": 40,
            "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 131072,
        },
    ),
    MISTRAL.variant("ministral", "MinistralDecoderLayer", attention=AttentionPlan(windows="all")),
    MISTRAL.variant(
        "ministral3",
        "Ministral3DecoderLayer",
        defaults={
            "vocab_size": 131072, "num_hidden_layers": 34, "head_dim": 128, "max_position_embeddings": 262144, "sliding_window": None,
        },
    ),
    LLAMA.variant(
        "arcee",
        "ArceeDecoderLayer",
        defaults={"hidden_size": 2560, "intermediate_size": 18432, "hidden_act": "relu2", "max_position_embeddings": 4096},
        feed_forward=FeedForwardPlan(gated=False, bias="mlp_bias"),
    ),
    LLAMA.variant(
        "jais2",
        "Jais2DecoderLayer",
        defaults={
            "vocab_size": 150272, "hidden_size": 3328, "intermediate_size": 26624, "num_attention_heads": 26, "hidden_act": "relu2",
            "max_position_embeddings": 8192, "attention_bias": True, "mlp_bias": True,
        },
        feed_forward=FeedForwardPlan(gated=False, bias="mlp_bias"),
        norm_kind="layer",
        norm_shift=True,
    ),
    LLAMA.variant(
        "nemotron",
        "NemotronDecoderLayer",
        defaults={
            "vocab_size": 256000, "hidden_size": 6144, "intermediate_size": 24576, "num_attention_heads": 48, "hidden_act": "relu2",
            "max_position_embeddings": 4096,
        },
        attention=AttentionPlan(bias="attention_bias", output_bias="attention_bias", rotary=0.5),
        feed_forward=FeedForwardPlan(gated=False, bias="mlp_bias"),
        norm_kind="layer",
        norm_shift=True,
    ),
    LLAMA.variant(
        "helium",
        "HeliumDecoderLayer",
        defaults={
            "vocab_size": 48000, "hidden_size": 2560, "intermediate_size": 7040, "num_hidden_layers": 24, "num_attention_heads": 20,
            "num_key_value_heads": 20, "head_dim": 128, "max_position_embeddings": 4096,
        },
        attention=AttentionPlan(bias="attention_bias"),
        norm_kind="rms_float32",
    ),
    LLAMA.variant(
        "apertus",
        "ApertusDecoderLayer",
        defaults={"vocab_size": 131072, "intermediate_size": 14336, "hidden_act": "xielu", "max_position_embeddings": 65536},
        attention=_NORMED,
        feed_forward=FeedForwardPlan(gated=False, learned_activations={"xielu": 2}),
    ),
    LLAMA.variant(
        "seed_oss",
        "SeedOssDecoderLayer",
        defaults={
            "vocab_size": 155136, "intermediate_size": 27648, "num_hidden_layers": 64, "num_attention_heads": 80,
            "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 524288, "attention_bias": True,
            "attention_out_bias": False, "attention_dropout": 0.1, "residual_dropout": 0.1,
        },
        attention=AttentionPlan(bias="attention_bias", output_bias="attention_out_bias"),
    ),
    LLAMA.variant(
        "ernie4_5",
        "Ernie4_5DecoderLayer",
        defaults={
            "vocab_size": 103424, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 18, "num_attention_heads": 16,
            "num_key_value_heads": 2, "head_dim": 128, "max_position_embeddings": 131072, "tie_word_embeddings": True,
            "use_bias": False,
        },
        attention=AttentionPlan(bias="use_bias", output_bias="use_bias"),
        feed_forward=FeedForwardPlan(bias="use_bias"),
    ),
    LLAMA.variant(
        "hunyuan_v1_dense",
        "HunYuanDenseV1DecoderLayer",
        defaults={"vocab_size": 290943},
        attention=_NORMED,
        feed_forward=_PLAIN,
    ),
    LLAMA.variant(
        "hyperclovax",
        "HyperCLOVAXDecoderLayer",
        defaults={"use_post_norm": True},
        norms=(
            ("attention_input", True),
            ("attention_output", "use_post_norm"),
            ("feed_forward_input", True),
            ("feed_forward_output", "use_post_norm"),
        ),
    ),
    LLAMA.variant(
        "bitnet",
        "BitNetDecoderLayer",
        defaults={
            "vocab_size": 128256, "hidden_size": 2560, "intermediate_size": 6912, "num_hidden_layers": 30, "num_attention_heads": 20,
            "num_key_value_heads": 5, "hidden_act": "relu2",
        },
        attention=AttentionPlan(bias="attention_bias", output_bias="attention_bias", inner_norm=True),
        feed_forward=FeedForwardPlan(inner_norm=True),
    ),
    LLAMA.variant(
        "diffllama",
        "DiffLlamaDecoderLayer",
        defaults={"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16},
        attention=AttentionPlan(bias="attention_bias", output_bias="attention_bias", vectors_per_head_dim=4),
        feed_forward=_PLAIN,
    ),
    LLAMA.variant(
        "granite_swa",
        "GraniteSWADecoderLayer",
        supports_sdpa=False,
        defaults={
            "vocab_size": 100352, "hidden_size": 2560, "intermediate_size": 8192, "num_hidden_layers": 24, "num_attention_heads": 20,
            "num_key_value_heads": 4, "max_position_embeddings": 8192, "tie_word_embeddings": True, "sliding_window": 128,
        },
        attention=AttentionPlan(bias="attention_bias", output_bias="attention_bias", sinks=True, windows="first_pattern"),
    ),
    LLAMA.variant(
        "nanochat",
        "NanoChatDecoderLayer",
        defaults={
            "vocab_size": 50304, "hidden_size": 768, "intermediate_size": 8192, "num_hidden_layers": 12, "num_attention_heads": 6,
            "hidden_act": "relu2", "final_logit_softcapping": 15.0,
        },
        attention=AttentionPlan(bias="attention_bias", output_bias="attention_bias", norm=QueryKeyNorm(vectors=0)),
        feed_forward=FeedForwardPlan(gated=False, up="fc1", down="fc2"),
        norm_scale=False,
    ),
)  # fmt: skip
