"""Bundled models: their sources, their counts, and how a name finds them."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fullstep.errors import InputError
from fullstep.models import bundled_config, bundled_models, find_model, hub, shape_from_config

SOURCE = re.compile(r"[\w.-]+/[\w.-]+ [\w./-]+ [0-9a-f]{40}(; .+)?\Z")

# Counts that the makers or the hub state for the checkpoint, to the last parameter.
PUBLISHED_COUNTS = {
    "meta-llama/Llama-2-7b-hf": 6_738_415_616,
    "meta-llama/Llama-2-13b-hf": 13_015_864_320,
    "meta-llama/Llama-2-70b-hf": 68_976_648_192,
    "meta-llama/Llama-3.1-8B": 8_030_261_248,
    "meta-llama/Llama-3.1-70B": 70_553_706_496,
    "meta-llama/Llama-3.1-405B": 405_853_388_800,
    "meta-llama/Llama-3.2-1B": 1_235_814_400,
    "meta-llama/Llama-3.2-3B": 3_212_749_824,
    "mistralai/Mistral-7B-v0.1": 7_241_732_096,
    "mistralai/Mixtral-8x7B-v0.1": 46_702_792_704,
    "Qwen/Qwen2.5-0.5B": 494_032_768,
    "Qwen/Qwen2.5-7B": 7_615_616_512,
    "Qwen/Qwen2.5-72B": 72_706_203_648,
    "Qwen/Qwen3-8B": 8_190_735_360,
    "Qwen/Qwen3-30B-A3B": 30_532_122_624,
    "google/gemma-2-2b": 2_614_341_888,
    "google/gemma-2-9b": 9_241_705_984,
    "google/gemma-2-27b": 27_227_128_320,
    "google/gemma-3-1b-it": 999_885_952,
    "microsoft/phi-2": 2_779_683_840,
    "microsoft/phi-4": 14_659_507_200,
    "openai-community/gpt2": 124_439_808,
    "openai-community/gpt2-xl": 1_557_611_200,
    "EleutherAI/gpt-j-6b": 6_050_882_784,
    "EleutherAI/gpt-neox-20b": 20_554_567_680,
    "EleutherAI/pythia-6.9b": 6_857_302_016,
    "bigscience/bloom-7b1": 7_069_016_064,
    "bigcode/starcoder2-7b": 7_173_923_840,
    "deepseek-ai/DeepSeek-V2-Lite": 15_706_484_224,
    "openai/gpt-oss-20b": 20_914_757_184,
    "openai/gpt-oss-120b": 116_829_156_672,
    "HuggingFaceTB/SmolLM3-3B": 3_075_098_624,
    "TinyLlama/TinyLlama-1.1B-Chat-v1.0": 1_100_048_384,
}


def test_there_are_many_and_each_has_a_source() -> None:
    models = bundled_models()
    assert len(models) >= 80
    assert [model.name for model in models] == sorted(model.name for model in models)
    for model in models:
        assert SOURCE.match(model.source), model


def test_the_bundled_count_is_that_of_the_shape() -> None:
    for model in bundled_models():
        assert shape_from_config(bundled_config(model.name)).parameters == model.parameters, model.name


@pytest.mark.parametrize("name", PUBLISHED_COUNTS)
def test_counts_are_the_published_ones(name: str) -> None:
    assert find_model(name).parameters == PUBLISHED_COUNTS[name]


@pytest.mark.parametrize("name", ["meta-llama/Llama-3.1-8B", "META-LLAMA/llama-3.1-8b", "Llama-3.1-8B", " llama-3.1-8b "])
def test_names_in_any_case_and_without_their_owner(name: str) -> None:
    assert find_model(name).name == "meta-llama/Llama-3.1-8B"


def test_a_bundled_config_is_a_copy() -> None:
    bundled_config("openai-community/gpt2")["n_embd"] = 1
    assert find_model("gpt2").hidden == 768


def test_an_unknown_name_gets_its_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "hub_is_installed", lambda: False)
    with pytest.raises(InputError) as caught:
        find_model("meta-lama/Llama-3.1-8")
    assert "meta-llama/Llama-3.1-8B" in str(caught.value)
    assert "fullstep[hub]" in str(caught.value)


@pytest.mark.parametrize(
    "name",
    ["/etc/passwd", "../x", "a/../b", "C:\\models", "~/model", "a/b/c", "", " ", ".", "a/..", "x" * 300, "a b", "file:///x", "a\nb", "ü/x"],
)
def test_what_looks_like_a_path_reaches_neither_disk_nor_network(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def reached(*_: object) -> Any:
        raise AssertionError("looked for it")

    monkeypatch.setattr(hub, "fetch_config", reached)
    with pytest.raises(InputError):
        find_model(name)


class GatedRepoError(Exception):
    """By the name of the hub client's own."""


def _hub_that(monkeypatch: pytest.MonkeyPatch, answer: Any) -> list[tuple[str, str]]:
    asked: list[tuple[str, str]] = []

    def hf_hub_download(name: str, file: str) -> str:
        asked.append((name, file))
        if isinstance(answer, Exception):
            raise answer
        return str(answer)

    module = ModuleType("huggingface_hub")
    module.hf_hub_download = hf_hub_download  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    monkeypatch.setattr(hub, "hub_is_installed", lambda: True)
    return asked


def test_other_names_are_asked_of_the_hub_for_their_config_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}', encoding="utf-8")
    asked = _hub_that(monkeypatch, tmp_path / "config.json")
    shape = find_model("somebody/model")
    assert (shape.name, shape.parameters) == ("somebody/model", 124_439_808)
    assert asked == [("somebody/model", "config.json")]


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (GatedRepoError("403\nlong text"), "Ask for access"),
        (OSError("no route to host"), "no route to host"),
        (ValueError(""), "ValueError"),
    ],
)
def test_errors_of_the_hub_are_errors_of_the_input(error: Exception, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _hub_that(monkeypatch, error)
    with pytest.raises(InputError, match=says):
        find_model("somebody/model")


@pytest.mark.parametrize(
    ("short", "name"),
    [("mixtral-8x7b", "mistralai/Mixtral-8x7B-v0.1"), ("Llama-2-7b", "meta-llama/Llama-2-7b-hf"), ("glm-4-9b", "zai-org/GLM-4-9B-0414")],
)
def test_a_version_at_the_end_may_be_left_out(short: str, name: str) -> None:
    assert find_model(short).name == name


def test_versions_that_leave_a_choice_are_listed() -> None:
    with pytest.raises(InputError, match=r"mistralai/Mistral-7B-v0\.1 or mistralai/Mistral-7B-v0\.3"):
        find_model("mistral-7b")


@pytest.mark.parametrize(("model_type", "near"), [("qwen4", "nearest: "), ("t5", ""), ("mamba", ""), ("zzz", "")])
def test_nearest_types_are_near(model_type: str, near: str) -> None:
    with pytest.raises(InputError) as caught:
        shape_from_config({"model_type": model_type})
    (fault,) = caught.value.faults
    assert ("nearest: " in fault.allowed) is bool(near)
    assert "`fullstep trace WORKSHEET`" in fault.remedy
