"""The real classes of many families: parameters and blocks as they are, fewer of the equal ones, and what one is told where one fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from small_models import of_class, small
from torch._subclasses.fake_tensor import FakeTensorMode

from fullstep.errors import InputError, UnsupportedError
from fullstep.lab.program import classes
from fullstep.lab.program.blocks import cut, find_blocks, with_fewer
from fullstep.lab.program.classes import build_model, config_of, faults_of_class

pytestmark = [pytest.mark.real_classes, pytest.mark.filterwarnings("default")]
Build = Callable[[dict[str, Any]], Any]

BLOCKS = {
    "llama": ("model.layers", 8, 1), "gemma2": ("model.layers", 12, 2), "gemma3": ("model.layers", 8, 2),
    "gpt_neo": ("transformer.h", 12, 2), "bloom": ("transformer.h", 8, 1), "bart": ("model.decoder.layers", 8, 1),
    "bert": ("bert.encoder.layer", 8, 1), "git": ("git.encoder.layer", 5, 1), "jetmoe": ("model.layers", 8, 1),
    "diffllama": ("model.layers", 8, 1), "zamba2": ("model.layers", 12, 2), "qwen3_next": ("model.layers", 24, 2),
    "recurrent_gemma": ("model.layers", 17, 2),
}  # fmt: skip
"""path of the list, blocks and kinds of them, as their configs say"""
COUNTED: dict[str, dict[str, Any]] = {
    **{name: {"num_hidden_layers": 3} for name in (
        "cohere", "phi3", "stablelm", "mixtral", "deepseek_v3", "qwen2_moe", "opt", "falcon", "mamba2", "roberta", "olmo2", "gpt_oss",
        "glm4", "rwkv", "persimmon", "granitemoeshared",
    )},
    "gpt2": {"n_layer": 3}, "xglm": {"num_layers": 3}, "pegasus": {"decoder_layers": 3}, "ctrl": {"n_layer": 3},
}  # fmt: skip
"""20 default configs of three layers"""


@pytest.fixture
def build() -> Iterator[Build]:
    with FakeTensorMode(allow_non_fake_inputs=True):
        yield lambda config: build_model(config_of(config), torch.bfloat16, "sdpa")


@pytest.mark.parametrize("model_type", COUNTED)
def test_parameters_are_those_of_the_class(model_type: str, build: Build) -> None:
    """Tied weights count once, as where the class is built the ordinary way."""
    config = {"model_type": model_type, **COUNTED[model_type]}
    built = build(config)
    with torch._subclasses.fake_tensor.unset_fake_temporarily():
        model = of_class(config)
    assert type(built) is type(model)
    assert {name: p.shape for name, p in built.named_parameters()} == {name: p.shape for name, p in model.named_parameters()}


def test_weights_are_tied_where_the_class_ties_them(build: Build) -> None:
    tied, untied = build(small("gemma2")), build(small("llama"))
    assert tied.get_output_embeddings().weight is tied.get_input_embeddings().weight
    assert untied.get_output_embeddings().weight is not untied.get_input_embeddings().weight


def test_a_class_without_sdpa_takes_its_own_attention(build: Build) -> None:
    assert build(small("bloom")).config._attn_implementation != "sdpa"


@pytest.mark.parametrize("model_type", BLOCKS)
def test_the_list_is_the_one_that_the_config_counts(model_type: str, build: Build) -> None:
    """Also where another is larger (the pictures of git), or an encoder's count stands first (bart)."""
    found = find_blocks(build(small(model_type)))
    assert (found.path, len(found.kinds), len(set(found.kinds))) == BLOCKS[model_type]
    assert found.alone


def test_kinds_follow_what_the_config_says_of_each_layer(build: Build) -> None:
    model = build(small("qwen3_next"))
    kinds, names = find_blocks(model).kinds, model.config.layer_types
    assert len(set(zip(kinds, names, strict=True))) == len(set(names)) == 2


def test_a_layer_that_is_more_than_one_block_is_never_left_out(build: Build) -> None:
    """xlm keeps attention, norms and feed-forward in lists beside each other."""
    found = find_blocks(build({**small("xlm"), "n_layers": 12}))
    assert not found.alone
    assert with_fewer(found).kept == tuple(range(12))


@pytest.mark.parametrize("model_type", ["gemma2", "gpt_neo", "qwen3_next", "bart"])
def test_a_cut_model_says_how_many_blocks_it_has(model_type: str, build: Build) -> None:
    model = build(small(model_type))
    blocks = with_fewer(find_blocks(model))
    before = list(model.get_submodule(blocks.path))
    kept = cut(model, blocks)
    assert len(kept) == len(blocks.kept) < len(before)
    assert list(model.get_submodule(blocks.path)) == kept == [before[index] for index in blocks.kept]
    counts = [getattr(model.config, name) for name in ("num_hidden_layers", "num_layers", "decoder_layers") if hasattr(model.config, name)]
    assert len(kept) in counts
    assert len(before) not in counts
    lists = [getattr(model.config, name) for name in ("layer_types", "attention_layers") if getattr(model.config, name, None) is not None]
    assert [len(each) for each in lists] == [len(kept)] * len(lists)
    for index, block in enumerate(kept):
        assert {module.layer_idx for module in block.modules() if hasattr(module, "layer_idx")} <= {index}


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "unknown": ({"model_type": "no_such_model"}, "'no_such_model', which transformers"),
    "missing": ({}, "None, which transformers"),
    "a number for a type": ({"model_type": 7}, "7, which transformers"),
    "code from elsewhere": ({"model_type": "mine", "auto_map": {"AutoModelForCausalLM": "mine.Mine"}}, "Remote code is never run"),
    "not causal": ({"model_type": "t5"}, "'t5' is not a causal language model"),
    "a part of a config": ({"model_type": "musicgen"}, "allowed: the keys of a MusicgenDecoderConfig"),
    "wrong type": ({**small("llama"), "hidden_size": "wide"}, "Field 'hidden_size' expected int, got str"),
    "negative": ({**small("llama"), "intermediate_size": -3}, "negative dimension -3"),
    "zero": ({**small("llama"), "vocab_size": 0}, "model.embed_tokens.weight would have no elements"),
    "no layers": ({**small("llama"), "num_hidden_layers": 0}, "num_hidden_layers: found 0; allowed: 1 to 1,000"),
    "very deep": ({**small("llama"), "num_hidden_layers": 10**5}, "num_hidden_layers: found 100,000; allowed: 1 to 1,000"),
    "deep inside": ({"model_type": "gemma3", "text_config": {"num_hidden_layers": 10**30}}, "text_config: num_hidden_layers: a number"),
    "very wide": ({**small("llama"), "hidden_size": 10**9}, "parameters; allowed: at most 1e+15"),
    "too large for a number": ({**small("llama"), "hidden_size": 10**40}, "hidden_size: a number out of all proportion"),
    "does not divide": ({**small("llama"), "num_attention_heads": 7}, "not a multiple of the number of attention heads"),
    "an unknown activation": ({**small("llama"), "hidden_act": "nope"}, "KeyError: 'nope' (modeling_llama.py"),
    "a default that is no number": ({"model_type": "hunyuan_v1_dense"}, "`self.scaling = self.head_dim**-0.5`"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_built_is_refused_in_a_line_and_at_once(case: str, build: Build) -> None:
    config, expected = BAD[case]
    began = time.process_time()
    with pytest.raises(InputError) as error:
        build(config)
    assert expected in str(error.value)
    assert len(error.value.faults) == 1
    assert time.process_time() - began < 5


def test_a_model_of_too_many_modules_is_refused(monkeypatch: pytest.MonkeyPatch, build: Build) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(classes, "MOST_MODULES", 50)
        with pytest.raises(UnsupportedError, match="makes more than 50 modules"):
            build(small("llama"))
    build(small("llama"))


def test_a_fault_of_our_own_is_not_put_down_to_the_class() -> None:
    with pytest.raises(ZeroDivisionError), faults_of_class(torch.nn.Linear(1, 1)):
        _ = 1 // 0
