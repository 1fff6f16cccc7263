"""More decoders of GPT's make: BLOOM, Falcon, MPT, OPT, StableLM, StarCoder and others.

Defaults and modules: the configuration and modelling files of transformers 5.23 for each model type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fullstep.models.architecture import Architecture, AttentionPlan, FeedForwardPlan, QueryKeyNorm
from fullstep.models.architectures.gpt import GPT2, GPT_NEOX, GPTJ, four_times
from fullstep.models.reader import ConfigReader


def _one_key_for_all(reader: ConfigReader) -> Mapping[str, Any]:
    heads = 1 if reader.flag("multi_query") else reader.whole("num_attention_heads", high=10**6)
    return {**four_times(reader), "num_key_value_heads": heads}


def _falcon(reader: ConfigReader) -> Mapping[str, Any]:
    """Falcon's three generations: heads of keys and values, and one norm or two."""
    grouped = reader.flag("new_decoder_architecture")
    shared = 1 if reader.flag("multi_query") else None
    norms = reader.raw("num_ln_in_parallel_attn")
    two_norms = not reader.flag("parallel_attn") or (norms == 2 if norms is not None else grouped)
    return {
        **four_times(reader),
        "num_key_value_heads": reader.raw("num_kv_heads") if grouped else shared,
        "two_norms": two_norms,
    }


def _opt(reader: ConfigReader) -> Mapping[str, Any]:
    final = reader.flag("do_layer_norm_before") and not reader.flag("_remove_final_layer_norm")
    return {"word_embed_proj_dim": reader.whole("hidden_size"), "has_final_norm": final}


_GPT_FEED_FORWARD = FeedForwardPlan(gated=False, up="dense_h_to_4h", down="dense_4h_to_h", bias=True)

GPT_VARIANTS = (
    GPT2.variant(
        "gpt_bigcode",
        "GPTBigCodeBlock",
        defaults={"hidden_act": "gelu_pytorch_tanh", "multi_query": True},
        derive=_one_key_for_all,
    ),
    GPT2.variant(
        "gpt_neo",
        "GPTNeoBlock",
        supports_sdpa=False,
        defaults={
            "max_position_embeddings": 2048, "hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 16,
            "window_size": 256, "attention_types": [[["global", "local"], 12]], "resid_pdrop": 0.0, "attn_pdrop": 0.0,
        },
        keys={
            "num_attention_heads": "num_heads", "num_hidden_layers": "num_layers", "hidden_act": "activation_function",
        },
        attention=AttentionPlan(output="out_proj", output_bias=True, rotary=0.0, windows="local"),
    ),
    GPTJ.variant(
        "codegen", "CodeGenBlock", attention=AttentionPlan(fused="qkv_proj", output="out_proj", rotary="rotary_dim")
    ),
    GPT2.variant(
        "bloom",
        "BloomBlock",
        supports_sdpa=False,
        defaults={
            "vocab_size": 250880, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 8, "hidden_act": "gelu",
            "max_position_embeddings": None, "resid_pdrop": 0.0, "attn_pdrop": 0.0,
        },
        keys={"hidden_size": "n_embed", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head"},
        attention=AttentionPlan(fused="query_key_value", output="dense", bias=True, output_bias=True, rotary=0.0, alibi=True),
        feed_forward=_GPT_FEED_FORWARD,
        embedding="word_embeddings",
        embedding_norm=True,
        learned_positions=False,
    ),
    Architecture(
        model_type="falcon",
        block_class="FalconDecoderLayer",
        defaults={
            "vocab_size": 65024, "hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71, "hidden_act": "gelu",
            "max_position_embeddings": 2048, "tie_word_embeddings": True, "new_decoder_architecture": False, "multi_query": True,
            "parallel_attn": True, "bias": False, "alibi": False,
        },
        keys={"intermediate_size": "ffn_hidden_size", "hidden_act": "activation"},
        derive=_falcon,
        attention=AttentionPlan(
            fused="query_key_value", output="dense", bias="bias", output_bias="bias", alibi="alibi", eager_softmax="scores",
            broadcasts_keys=True,
        ),
        feed_forward=FeedForwardPlan(gated=False, up="dense_h_to_4h", down="dense_4h_to_h", bias="bias"),
        norms=(("attention_input", True), ("feed_forward_input", "two_norms")),
        norm_kind="layer",
        norm_shift=True,
        parallel_residual="parallel_attn",
        embedding="word_embeddings",
    ),
    Architecture(
        model_type="mpt",
        supports_sdpa=False,
        block_class="MptBlock",
        defaults={
            "vocab_size": 50368, "hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 16, "hidden_act": "gelu",
            "max_position_embeddings": 2048, "tie_word_embeddings": True, "resid_pdrop": 0.0,
        },
        keys={
            "hidden_size": "d_model", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads",
            "max_position_embeddings": "max_seq_len",
        },
        derive=four_times,
        attention=AttentionPlan(fused="Wqkv", output="out_proj", rotary=0.0, alibi=True),
        feed_forward=FeedForwardPlan(gated=False),
        norm_kind="layer",
        embedding="wte",
    ),
    Architecture(
        model_type="opt",
        block_class="OPTDecoderLayer",
        defaults={
            "vocab_size": 50272, "hidden_size": 768, "num_hidden_layers": 12, "intermediate_size": 3072, "num_attention_heads": 12,
            "hidden_act": "relu", "max_position_embeddings": 2048, "tie_word_embeddings": True, "do_layer_norm_before": True,
            "enable_bias": True, "layer_norm_elementwise_affine": True, "dropout": 0.1,
        },
        keys={"intermediate_size": "ffn_dim", "hidden_act": "activation_function"},
        derive=_opt,
        attention=AttentionPlan(output="out_proj", bias="enable_bias", output_bias="enable_bias", rotary=0.0),
        feed_forward=FeedForwardPlan(gated=False, up="fc1", down="fc2", bias="enable_bias"),
        norms=(
            ("attention_input", "do_layer_norm_before"),
            ("feed_forward_input", "do_layer_norm_before"),
            ("attention_output", "not do_layer_norm_before"),
            ("feed_forward_output", "not do_layer_norm_before"),
        ),
        norm_kind="layer",
        norm_scale="layer_norm_elementwise_affine",
        norm_shift=True,
        final_norm="has_final_norm",
        embedding_width="word_embed_proj_dim",
        learned_positions=True,
        extra_positions=2,
    ),
    Architecture(
        model_type="xglm",
        supports_sdpa=False,
        block_class="XGLMDecoderLayer",
        defaults={
            "vocab_size": 256008, "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096,
            "hidden_act": "gelu", "max_position_embeddings": 2048, "tie_word_embeddings": True, "dropout": 0.1,
            "attention_dropout": 0.1,
        },
        keys={
            "hidden_size": "d_model", "num_hidden_layers": "num_layers", "num_attention_heads": "attention_heads",
            "intermediate_size": "ffn_dim", "hidden_act": "activation_function",
        },
        attention=AttentionPlan(output="out_proj", bias=True, output_bias=True, rotary=0.0),
        feed_forward=FeedForwardPlan(gated=False, up="fc1", down="fc2", bias=True),
        norm_kind="layer",
        norm_shift=True,
    ),
    GPT_NEOX.variant(
        "persimmon",
        "PersimmonDecoderLayer",
        defaults={
            "vocab_size": 262144, "hidden_size": 4096, "intermediate_size": 16384, "num_hidden_layers": 36, "hidden_act": "relu2",
            "max_position_embeddings": 16384, "qk_layernorm": True,
        },
        attention=AttentionPlan(
            fused="query_key_value", output="dense", bias=True, output_bias=True, rotary=0.5,
            norm=QueryKeyNorm(kind="layer", vectors=2, when="qk_layernorm"),
        ),
        parallel_residual=False,
        embedding="embed_tokens",
    ),
    Architecture(
        model_type="stablelm",
        block_class="StableLmDecoderLayer",
        defaults={
            "vocab_size": 50304, "hidden_size": 2560, "intermediate_size": 6912, "num_hidden_layers": 32, "num_attention_heads": 32,
            "num_key_value_heads": 32, "hidden_act": "silu", "max_position_embeddings": 4096, "tie_word_embeddings": False,
            "use_qkv_bias": False, "qk_layernorm": False, "use_parallel_residual": False,
        },
        attention=AttentionPlan(
            bias="use_qkv_bias", rotary=0.25, norm=QueryKeyNorm(span="every_head", kind="layer", when="qk_layernorm")
        ),
        norms=(("attention_input", True), ("feed_forward_input", "not use_parallel_residual")),
        norm_kind="layer",
        norm_shift=True,
        parallel_residual="use_parallel_residual",
    ),
    Architecture(
        model_type="starcoder2",
        block_class="Starcoder2DecoderLayer",
        defaults={
            "vocab_size": 49152, "hidden_size": 3072, "intermediate_size": 12288, "num_hidden_layers": 30, "num_attention_heads": 24,
            "num_key_value_heads": 2, "hidden_act": "gelu_pytorch_tanh", "max_position_embeddings": 4096, "tie_word_embeddings": True,
            "use_bias": True, "use_sliding_window": True,
        },
        attention=AttentionPlan(bias="use_bias", output_bias="use_bias", windows="every"),
        feed_forward=FeedForwardPlan(gated=False, up="c_fc", down="c_proj", bias="use_bias"),
        norm_kind="layer",
        norm_shift=True,
    ),
)  # fmt: skip
