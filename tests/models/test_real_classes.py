"""Every supported model type against the class of transformers itself, built on the meta device: no weights, no memory.

Needs the extra ``lab``; run by ``pytest -m real_classes``.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from fullstep.models import ModelShape, bundled_config, bundled_models, shape_from_config, supported_model_types

pytestmark = [pytest.mark.real_classes, pytest.mark.filterwarnings("default")]

# The class's own defaults do not make a model: what the class itself stumbles over when a config leaves it out.
WITHOUT_WHICH_THE_CLASS_FAILS: dict[str, dict[str, Any]] = {
    "deepseek_v2": {"num_experts_per_tok": 6},
    "dots1": {"n_routed_experts": 128, "n_shared_experts": 2, "num_experts_per_tok": 6},
    "hunyuan_v1_dense": {"head_dim": 128, "num_key_value_heads": 8},
    "hunyuan_v1_moe": {"head_dim": 128, "num_key_value_heads": 8, "num_experts": 16, "moe_topk": 2},
    "ministral": {"head_dim": 128},
    "nemotron": {"num_key_value_heads": 48, "head_dim": 128},
}

# Turns that no default and no bundled model takes, with the model that takes them where there is one.
TURNS: dict[str, dict[str, Any]] = {
    "opt, post-norm and a narrower embedding (facebook/opt-350m)": {
        "model_type": "opt", "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "ffn_dim": 4096,
        "word_embed_proj_dim": 512, "do_layer_norm_before": False,
    },
    "mpt of 7B (mosaicml/mpt-7b)": {"model_type": "mpt", "d_model": 4096, "n_heads": 32, "n_layers": 32, "vocab_size": 50432},
    "cohere2 of 7B (CohereForAI/c4ai-command-r7b-12-2024)": {
        "model_type": "cohere2", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "sliding_window_pattern": 4,
    },
    "cohere with normed queries and keys": {"model_type": "cohere", "num_hidden_layers": 2, "num_key_value_heads": 8, "use_qk_norm": True},
    "phi with normed queries and keys": {"model_type": "phi", "num_hidden_layers": 2, "qk_layernorm": True},
    "stablelm with parallel branches and a norm per head": {
        "model_type": "stablelm", "num_hidden_layers": 2, "qk_layernorm": True, "use_parallel_residual": True, "use_qkv_bias": True,
    },
    "persimmon without normed queries and keys": {"model_type": "persimmon", "num_hidden_layers": 2, "qk_layernorm": False},
    "falcon, one norm and ALiBi (tiiuae/falcon-rw-1b)": {
        "model_type": "falcon", "hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 32, "vocab_size": 50304,
        "alibi": True, "bias": True, "multi_query": False, "parallel_attn": False, "new_decoder_architecture": False,
    },
    "falcon, new and with one norm": {
        "model_type": "falcon", "hidden_size": 4096, "num_hidden_layers": 2, "num_attention_heads": 64, "num_kv_heads": 8,
        "new_decoder_architecture": True, "num_ln_in_parallel_attn": 1,
    },
    "gpt_bigcode with all heads": {"model_type": "gpt_bigcode", "multi_query": False},
    "llama with every bias": {"model_type": "llama", "num_hidden_layers": 2, "attention_bias": True, "mlp_bias": True},
    "gpt_neox without attention biases": {"model_type": "gpt_neox", "num_hidden_layers": 2, "attention_bias": False},
    "phimoe with every bias (microsoft/Phi-3.5-MoE-instruct)": {"model_type": "phimoe", "attention_bias": True, "lm_head_bias": True},
    "qwen2 with windows in its upper layers": {
        "model_type": "qwen2", "num_hidden_layers": 6, "use_sliding_window": True, "sliding_window": 64, "max_window_layers": 4,
    },
    "qwen3_moe with dense layers between": {
        "model_type": "qwen3_moe", "num_hidden_layers": 6, "decoder_sparse_step": 2, "mlp_only_layers": [1],
    },
    "olmoe of 7B (allenai/OLMoE-1B-7B-0924)": {"model_type": "olmoe", "intermediate_size": 1024},
    "ernie4_5_moe with experts in some layers and biases": {
        "model_type": "ernie4_5_moe", "num_hidden_layers": 8, "moe_layer_start_index": 2, "moe_layer_end_index": 5,
        "moe_layer_interval": 2, "use_bias": True,
    },
    "glm4_moe with normed queries and keys": {
        "model_type": "glm4_moe", "num_hidden_layers": 3, "first_k_dense_replace": 2, "head_dim": 128, "use_qk_norm": True,
        "attention_bias": True,
    },
    "smollm3 with windows": {"model_type": "smollm3", "num_hidden_layers": 8, "use_sliding_window": True, "sliding_window": 64},
    "gpt_oss without attention biases": {"model_type": "gpt_oss", "num_hidden_layers": 2, "attention_bias": False},
    "llama4 with dense layers between": {
        "model_type": "llama4_text", "num_hidden_layers": 6, "interleave_moe_layer_step": 2, "num_local_experts": 128,
    },
    "hyperclovax without post norms": {"model_type": "hyperclovax", "num_hidden_layers": 2, "use_post_norm": False},
    "apertus with another activation": {"model_type": "apertus", "num_hidden_layers": 2, "hidden_act": "relu2"},
    "exaone_moe with mixed layers": {
        "model_type": "exaone_moe", "num_hidden_layers": 4, "mlp_layer_types": ["dense", "sparse", "dense", "sparse"],
    },
}  # fmt: skip


def _published() -> dict[str, dict[str, Any]]:
    """One bundled model of each different config."""
    by_config = {json.dumps(bundled_config(model.name), sort_keys=True): model.name for model in reversed(bundled_models())}
    return {name: bundled_config(name) for name in sorted(by_config.values())}


def _real_model(config: dict[str, Any]) -> Any:
    import torch  # noqa: PLC0415 - the extra lab is there only where this test is selected
    from transformers import AutoConfig, AutoModelForCausalLM  # noqa: PLC0415

    keys = {**config.get("text_config", config)}
    real_config = AutoConfig.for_model(keys.pop("model_type"), **keys)
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(real_config)


def _real_linears(model: Any) -> Counter[tuple[str, int, int]]:
    """Name, inputs and outputs of every linear module but the head and the projections around the blocks."""
    import torch  # noqa: PLC0415
    from transformers.pytorch_utils import Conv1D  # noqa: PLC0415

    head = model.get_output_embeddings()
    found: Counter[tuple[str, int, int]] = Counter()
    for path, module in model.named_modules():
        name = path.rpartition(".")[2]
        if module is head or name in ("project_in", "project_out"):
            continue
        if isinstance(module, Conv1D):
            found[name, module.weight.shape[0], module.weight.shape[1]] += 1
        elif isinstance(module, torch.nn.Linear):
            found[name, module.in_features, module.out_features] += 1
    return found


def _own_linears(shape: ModelShape) -> Counter[tuple[str, int, int]]:
    linears = (linear for index in shape.layers for linear in shape.blocks[index].linears if not linear.stacked)
    return Counter((linear.name, linear.inputs, linear.outputs) for linear in linears)


def _compare(config: dict[str, Any]) -> None:
    shape = shape_from_config(config)
    model = _real_model(config)
    assert shape.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert _own_linears(shape) == _real_linears(model)
    blocks = [module for module in model.modules() if type(module).__name__ == shape.block_class]
    assert len(blocks) == len(shape.layers)
    per_block = [sum(parameter.numel() for parameter in block.parameters()) for block in blocks]
    assert per_block == [shape.blocks[index].parameters for index in shape.layers]
    names = {id(module): path.rpartition(".")[2] for path, module in model.named_modules()}
    head = model.get_output_embeddings()
    assert names[id(model.get_input_embeddings())] == shape.embedding_name
    assert names[id(head)] == shape.head_name
    assert (head.weight is model.get_input_embeddings().weight) == shape.tied
    kinds = getattr(model.config, "layer_types", None)
    if kinds:
        slides = [kind != "full_attention" for kind in kinds]
        assert [shape.blocks[index].attention.window is not None for index in shape.layers] == slides


@pytest.mark.parametrize("model_type", supported_model_types())
def test_default_config_of_every_type_is_counted_like_its_class(model_type: str) -> None:
    _compare({"model_type": model_type, **WITHOUT_WHICH_THE_CLASS_FAILS.get(model_type, {})})


@pytest.mark.parametrize("name", _published())
def test_published_models_are_counted_like_their_class(name: str) -> None:
    _compare(bundled_config(name))


@pytest.mark.parametrize("turn", TURNS)
def test_turns_of_an_architecture_are_counted_like_their_class(turn: str) -> None:
    _compare(TURNS[turn])


def test_default_adapter_targets_are_those_of_peft() -> None:
    from peft.utils.constants import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING as TARGETS  # noqa: PLC0415

    for model_type in supported_model_types():
        keys = WITHOUT_WHICH_THE_CLASS_FAILS.get(model_type, {})
        shape = shape_from_config({"model_type": model_type, **keys})
        assert shape.default_adapter_targets == tuple(TARGETS.get(model_type, ())), model_type
