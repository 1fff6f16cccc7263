"""Counts redone by hand, defaults of the config classes, and configs that are at fault."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from fullstep.errors import InputError, UnsupportedError
from fullstep.models import read_config, shape_from_config, supported_model_types

LLAMA_3_8B = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": False, "hidden_act": "silu",
}  # fmt: skip


def test_llama_by_component() -> None:
    """q and o: 4096 x 4096; k and v: 4096 x 1024; three projections of 4096 x 14336; two norms a block and one at the end."""
    shape = shape_from_config(LLAMA_3_8B, "meta-llama/Llama-3.1-8B")
    assert shape.parameters_by_component == {
        "embedding": 128256 * 4096,
        "positions": 0,
        "attention": 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024),
        "feed_forward": 32 * 3 * 4096 * 14336,
        "experts": 0,
        "router": 0,
        "norms": (2 * 32 + 1) * 4096,
        "other": 0,
        "head": 128256 * 4096,
    }
    assert shape.parameters == shape.active_parameters == 8_030_261_248
    assert (shape.name, shape.hidden, len(shape.layers), shape.block_class) == ("meta-llama/Llama-3.1-8B", 4096, 32, "LlamaDecoderLayer")
    assert shape.linear_names == ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def test_tied_embeddings_are_counted_once() -> None:
    """Llama-3.2-1B: 1,235,814,400, of which 128256 x 2048 serve as embedding and head."""
    keys = {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "head_dim": 64, "tie_word_embeddings": True}
    shape = shape_from_config({**LLAMA_3_8B, **keys})
    assert shape.tied and shape.head_parameters == 0
    assert shape.parameters == 1_235_814_400 == 128256 * 2048 + 16 * (2 * 2048**2 + 2 * 2048 * 512 + 3 * 2048 * 8192) + 33 * 2048


def test_gpt2_has_positions_and_biases() -> None:
    """OpenAI's small model: 124,439,808."""
    shape = shape_from_config({"model_type": "gpt2"})
    block = 768 * 2304 + 2304 + 768 * 768 + 768 + 2 * 768 * 3072 + 3072 + 768 + 4 * 768
    assert shape.parameters == 124_439_808 == 50257 * 768 + 1024 * 768 + 12 * block + 2 * 768
    assert shape.position_parameters == 1024 * 768
    assert shape.blocks[0].dropouts
    assert shape.blocks[0].attention.rotary_fraction == 0
    assert shape.linear_names == ("c_attn", "c_proj", "c_fc")


def test_mixtral_routes_two_of_eight() -> None:
    """Mixtral-8x7B: 46.7 B, of which 12.9 B are active (its paper)."""
    shape = shape_from_config({"model_type": "mixtral"})
    expert = 3 * 4096 * 14336
    assert shape.parameters == 46_702_792_704
    assert shape.parameters_by_component["experts"] == 32 * 8 * expert
    assert shape.parameters_by_component["router"] == 32 * 8 * 4096
    assert shape.active_parameters == 46_702_792_704 - 32 * 6 * expert == 12_879_925_248
    assert shape.linear_names == ("q_proj", "k_proj", "v_proj", "o_proj")
    stacked = [linear for linear in shape.blocks[0].linears if linear.stacked]
    assert [(linear.role, linear.copies) for linear in stacked] == [("router", 1), ("gate_up", 8), ("down", 8)]


def test_deepseek_v3_has_dense_layers_first_and_latent_attention() -> None:
    """671 B in all, 37 B active (its report); 671,026,404,352 without the layer for predicting the next token but one."""
    shape = shape_from_config({"model_type": "deepseek_v3"})
    assert shape.parameters == 671_026_404_352
    assert round(shape.active_parameters / 1e9, 1) == 37.6
    assert shape.layers == (0,) * 3 + (1,) * 58
    assert [block.label for block in shape.blocks] == ["dense", "expert"]
    assert shape.blocks[1].feed_forward.shared_intermediate == 2048
    attention = shape.blocks[0].attention
    assert (attention.kind, attention.head_dim, attention.value_head_dim) == ("latent", 192, 128)
    assert attention.rotary_fraction == pytest.approx(64 / 192)


def test_phi_counts_the_bias_of_its_head() -> None:
    shape = shape_from_config({"model_type": "phi"})
    assert shape.head_bias and shape.head_parameters == 51200 * 2048 + 51200
    assert shape.blocks[0].parallel_residual and len(shape.blocks[0].norms) == 1


def test_opt_350m_projects_into_and_out_of_its_embedding() -> None:
    """facebook/opt-350m: 331,196,416; norms behind the branches, none at the end."""
    keys = {
        "model_type": "opt", "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "ffn_dim": 4096,
        "word_embed_proj_dim": 512, "do_layer_norm_before": False,
    }  # fmt: skip
    shape = shape_from_config(keys)
    assert shape.parameters == 331_196_416
    assert shape.embedding_parameters == 50272 * 512
    assert shape.embedding_other_parameters == shape.final_other_parameters == 512 * 1024
    assert shape.final_norm is None
    assert [norm.place for norm in shape.blocks[0].norms] == ["attention_output", "feed_forward_output"]


def test_keys_may_go_by_their_usual_names() -> None:
    usual = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16}
    own = {"n_embd": 1024, "n_layer": 24, "n_head": 16}
    shapes = [shape_from_config({"model_type": "gpt2", **keys}) for keys in (usual, own)]
    assert asdict(shapes[0]) == asdict(shapes[1])
    assert shape_from_config({"model_type": "gpt2", **own}).parameters == 354_823_168


def test_null_counts_as_left_to_the_class() -> None:
    """head_dim: null divides the hidden size; num_key_value_heads: null is one for each head."""
    shape = shape_from_config({**LLAMA_3_8B, "head_dim": None, "num_key_value_heads": None})
    assert (shape.blocks[0].attention.head_dim, shape.blocks[0].attention.key_value_heads) == (128, 32)


def test_a_model_with_pictures_is_sized_by_its_language_part() -> None:
    text = {key: value for key, value in LLAMA_3_8B.items() if key != "tie_word_embeddings"}
    shape = shape_from_config({"model_type": "llava", "text_config": text, "vision_config": {"hidden_size": 1024}})
    assert shape.covers == "the language part of a model that takes more than text"
    assert shape.parameters == 8_030_261_248
    tied = shape_from_config({"model_type": "gemma3", "text_config": {"num_hidden_layers": 2}, "tie_word_embeddings": True})
    assert tied.model_type == "gemma3_text" and tied.tied
    flat = shape_from_config({**LLAMA_3_8B, "model_type": "qwen2_5_vl", "vision_config": {}})
    assert flat.model_type == "qwen2" and flat.covers


def test_equal_configs_share_one_shape_and_keep_their_names() -> None:
    first = shape_from_config(LLAMA_3_8B, "a")
    assert shape_from_config(dict(LLAMA_3_8B), "a") is first
    assert shape_from_config(LLAMA_3_8B, "b").name == "b"
    changed: dict[str, Any] = dict(LLAMA_3_8B)
    before = shape_from_config(changed)
    changed["vocab_size"] = 1000
    assert shape_from_config(changed).vocabulary == 1000
    assert before.vocabulary == 128256


def test_all_faults_are_reported_together() -> None:
    config = {
        "model_type": "llama", "hidden_size": -3, "vocab_size": "many", "num_attention_heads": float("nan"), "num_hidden_layers": 10**30,
        "intermediate_size": True, "tie_word_embeddings": "no",
    }  # fmt: skip
    with pytest.raises(InputError) as caught:
        shape_from_config(config)
    assert {fault.where.rpartition(" ")[2] for fault in caught.value.faults} == set(config) - {"model_type"}
    assert "hidden_size: found -3; allowed: a whole number, 1 to 100,000,000" in str(caught.value)


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"num_attention_heads": 33}, "33, which does not divide hidden_size 4096"),
        ({"num_key_value_heads": 5}, "found 5, which does not divide the 32 heads"),
        ({"num_hidden_layers": 10_001}, "allowed: a whole number, 1 to 10,000"),
        ({"hidden_size": 4096.0}, "found 4096.0"),
        ({"vocab_size": 10**5000}, "Exceeds the limit (4300 digits)"),
        ({"attention_dropout": float("inf")}, "attention_dropout: found inf"),
        ({"extra": {1, 2}}, "not JSON serializable"),
    ],
)
def test_faults_say_what_was_found_and_what_is_allowed(keys: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError) as caught:
        shape_from_config({**LLAMA_3_8B, **keys})
    assert says in str(caught.value)


def test_a_slip_in_a_size_is_not_taken_for_a_default() -> None:
    config = {"model_type": "llama", "hiden_size": 2048}
    with pytest.raises(InputError, match="Did you mean hidden_size"):
        shape_from_config(config)


def test_a_default_that_does_not_fit_is_named() -> None:
    with pytest.raises(InputError, match="missing; its default is 32, which does not divide the 16 heads"):
        shape_from_config({"model_type": "qwen2", "num_attention_heads": 16})


def test_deep_nesting_is_refused() -> None:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(InputError, match="too deeply nested"):
        shape_from_config({"model_type": "llama", "extra": nested})


@pytest.mark.parametrize("config", [{}, {"model_type": None}, {"model_type": 3}, {"model_type": ""}])
def test_the_model_type_is_required(config: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="model_type"):
        shape_from_config(config)


def test_an_unsupported_type_names_its_neighbours_and_the_way_out() -> None:
    with pytest.raises(UnsupportedError) as caught:
        shape_from_config({"model_type": "qwen3_next"})
    assert "qwen3" in caught.value.faults[0].allowed
    assert "fullstep trace" in caught.value.faults[0].remedy


def test_the_types_that_people_use_are_there() -> None:
    wanted = """llama mistral mixtral qwen2 qwen2_moe qwen3 qwen3_moe gemma gemma2 gemma3_text phi phi3 granite granitemoe gpt2 gpt_neox
        gpt_bigcode gptj bloom opt falcon mpt stablelm starcoder2 cohere cohere2 olmo olmo2 glm4 deepseek_v2 deepseek_v3 gpt_oss nemotron
        exaone4 smollm3"""
    assert set(wanted.split()) <= set(supported_model_types())


def test_configs_are_read_from_files_and_folders(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_3_8B), encoding="utf-8")
    assert read_config(tmp_path) == read_config(str(tmp_path / "config.json")) == LLAMA_3_8B


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"{", "cannot be read"),
        (b"\xff\xfe", "cannot be read"),
        (b"[1]", "a table of keys"),
        (b"[" * 900_000, "too deeply nested"),
        (b" " * 1_000_001, "at most 1,000,000 bytes"),
    ],
)
def test_files_that_are_no_configs_are_refused(tmp_path: Path, content: bytes, says: str) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(content)
    with pytest.raises(InputError, match=says):
        read_config(file)


def test_a_missing_file_is_an_error_of_the_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_config(tmp_path / "nowhere")
    with pytest.raises(InputError):
        read_config("a\0b")


@pytest.mark.parametrize(
    ("changes", "faulty"),
    [
        ({"hidden_size": "64"}, ["hidden_size"]),
        ({"hidden_size": "64", "num_attention_heads": 5, "num_key_value_heads": 5}, ["hidden_size"]),
        ({"num_attention_heads": 0}, ["num_attention_heads"]),
        ({"num_attention_heads": 5, "num_key_value_heads": 2}, ["num_attention_heads"]),
        ({"num_key_value_heads": 3}, ["num_key_value_heads"]),
        ({"hidden_size": None, "hiden_size": 96, "num_attention_heads": 12, "num_key_value_heads": 12}, ["hiden_size"]),
        ({"model_type": "mixtral", "num_local_experts": 0}, ["num_local_experts"]),
        ({"model_type": "mixtral", "num_local_experts": 1}, ["num_experts_per_tok"]),
        ({"model_type": "qwen3", "num_hidden_layers": 0, "layer_types": [], "use_sliding_window": True}, ["num_hidden_layers"]),
    ],
)
def test_a_faulty_key_makes_no_other_key_faulty(changes: dict[str, Any], faulty: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        shape_from_config({**LLAMA_3_8B, **changes})
    assert [fault.where.removeprefix("model config: ") for fault in caught.value.faults] == faulty


@pytest.mark.parametrize(
    ("part", "word"),
    [("llama", "'llama'"), ({}, "an empty table"), ([1], r"\[1\]"), (False, "False"), ({"text_config": {"n": 1}}, "inside another")],
)
def test_a_language_part_that_is_none_is_refused(part: object, word: str) -> None:
    for key in ("text_config", "llm_config"):
        with pytest.raises(InputError, match=f"{key}.*{word}"):
            shape_from_config({"model_type": "llava", key: part})
    assert shape_from_config({**LLAMA_3_8B, "text_config": None}).parameters == 8_030_261_248


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('{"model_type": "gpt2", "n_layer": 2, "n_layer": 4}', 'the key "n_layer" stands twice'),
        (f'{{"model_type": "gpt2", "n_layer": {"1" * 5000}}}', "a number of thousands of digits"),
        ('{"model_type": ', "cannot be read"),
        ("[" * 100_000, "too deeply nested"),
    ],
)
def test_a_config_file_is_read_as_strictly_as_a_worksheet(tmp_path: Path, text: str, word: str) -> None:
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=word):
        read_config(tmp_path)


def test_a_mark_of_byte_order_is_no_part_of_a_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}', encoding="utf-8-sig")
    assert read_config(tmp_path) == {"model_type": "gpt2"}
