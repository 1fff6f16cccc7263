"""Decoders of GPT's make: layer norms with scale and shift, biases, two projections in the feed-forward layer.

Defaults and modules: the configuration and modelling files of transformers 5.23 for each model type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fullstep.models.architecture import ONE_NORM, Architecture, AttentionPlan, FeedForwardPlan, QueryKeyNorm
from fullstep.models.reader import ConfigReader


def four_times(reader: ConfigReader) -> Mapping[str, Any]:
    """The feed-forward layer is four times as wide as the hidden size unless the config says otherwise."""
    return {"intermediate_size": 4 * reader.whole("hidden_size")}


_GPT2_KEYS = {
    "hidden_size": "n_embd", "max_position_embeddings": "n_positions", "num_attention_heads": "n_head", "num_hidden_layers": "n_layer",
    "intermediate_size": "n_inner", "hidden_act": "activation_function",
}  # fmt: skip

GPT2 = Architecture(
    model_type="gpt2",
    block_class="GPT2Block",
    defaults={
        "vocab_size": 50257, "max_position_embeddings": 1024, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
        "hidden_act": "gelu_new", "resid_pdrop": 0.1, "attn_pdrop": 0.1, "tie_word_embeddings": True,
    },
    keys=_GPT2_KEYS,
    derive=four_times,
    attention=AttentionPlan(
        fused="c_attn", output="c_proj", bias=True, output_bias=True, rotary=0.0, eager_softmax="plain"
    ),
    feed_forward=FeedForwardPlan(gated=False, up="c_fc", down="c_proj", bias=True),
    norm_kind="layer",
    norm_shift=True,
    embedding="wte",
    learned_positions=True,
)  # fmt: skip
GPTJ = GPT2.variant(
    "gptj",
    "GPTJBlock",
        supports_sdpa=False,
    defaults={
        "vocab_size": 50400, "max_position_embeddings": 2048, "hidden_size": 4096, "num_hidden_layers": 28, "num_attention_heads": 16,
        "rotary_dim": 64, "resid_pdrop": 0.0, "attn_pdrop": 0.0, "tie_word_embeddings": False,
    },
    attention=AttentionPlan(output="out_proj", rotary="rotary_dim"),
    feed_forward=FeedForwardPlan(gated=False, up="fc_in", down="fc_out", bias=True),
    norms=ONE_NORM,
    parallel_residual=True,
    head_bias=True,
    learned_positions=False,
)  # fmt: skip
GPT_NEOX = Architecture(
    model_type="gpt_neox",
    block_class="GPTNeoXLayer",
    defaults={
        "vocab_size": 50432, "hidden_size": 6144, "num_hidden_layers": 44, "num_attention_heads": 64, "intermediate_size": 24576,
        "hidden_act": "gelu", "max_position_embeddings": 2048, "tie_word_embeddings": False, "use_parallel_residual": True,
        "attention_bias": True,
    },
    attention=AttentionPlan(
        fused="query_key_value", output="dense", bias="attention_bias", output_bias="attention_bias", rotary=0.25
    ),
    feed_forward=FeedForwardPlan(gated=False, up="dense_h_to_4h", down="dense_4h_to_h", bias=True),
    norm_kind="layer",
    norm_shift=True,
    parallel_residual="use_parallel_residual",
    embedding="embed_in",
)  # fmt: skip
PHI = Architecture(
    model_type="phi",
    block_class="PhiDecoderLayer",
    defaults={
        "vocab_size": 51200, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 24, "num_attention_heads": 32,
        "hidden_act": "gelu_new", "max_position_embeddings": 2048, "tie_word_embeddings": False, "qk_layernorm": False,
    },
    attention=AttentionPlan(
        output="dense",
        bias=True,
        output_bias=True,
        rotary=0.5,
        norm=QueryKeyNorm(kind="layer", vectors=2, when="qk_layernorm"),
    ),
    feed_forward=FeedForwardPlan(gated=False, up="fc1", down="fc2", bias=True),
    norms=ONE_NORM,
    norm_kind="layer",
    norm_shift=True,
    parallel_residual=True,
    head_bias=True,
)  # fmt: skip

GPT_LIKE = (GPT2, GPTJ, GPT_NEOX, PHI)
