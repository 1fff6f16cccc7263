"""Exports of real models: what transformers and peft read back, tensor by tensor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, load_model
from torch import nn

from fullstep.resume import SaveError, export_model
from fullstep.resume.sealed import faults_of

pytestmark = [pytest.mark.real_classes, pytest.mark.filterwarnings("ignore")]


def _llama(tied: bool = False) -> Any:
    torch.manual_seed(0)
    sizes = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, tie_word_embeddings=tied))


@pytest.mark.parametrize("tied", [False, True])
def test_transformers_reads_it_back(tmp_path: Path, tied: bool) -> None:
    model = _llama(tied)
    exported = export_model(tmp_path / "out", model)
    again = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "out")
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in model.state_dict().items())
    weights = sum(parameter.numel() for parameter in model.parameters()) * 4
    (file,) = (tmp_path / "out").glob("*.safetensors")
    assert weights < file.stat().st_size < weights + 4096  # shared weights once, and the header
    assert faults_of(tmp_path / "out") == []
    assert exported.files == len(list((tmp_path / "out").iterdir()))


def test_in_another_dtype(tmp_path: Path) -> None:
    model = _llama()
    export_model(tmp_path / "out", model, dtype=torch.bfloat16)
    (file,) = (tmp_path / "out").glob("*.safetensors")
    found = load_file(file)
    assert {value.dtype for value in found.values()} == {torch.bfloat16}
    assert all(torch.equal(value, model.state_dict()[name].bfloat16()) for name, value in found.items())


def test_of_an_adapter_the_adapter_alone(tmp_path: Path) -> None:
    from peft import LoraConfig, PeftModel, get_peft_model  # noqa: PLC0415

    base = _llama()
    model = get_peft_model(base, LoraConfig(r=4, target_modules=["q_proj"], init_lora_weights=False))
    export_model(tmp_path / "out", model)
    assert not list((tmp_path / "out").glob("model*"))
    again = PeftModel.from_pretrained(_llama(), tmp_path / "out")
    mine = {name: value for name, value in model.state_dict().items() if "lora" in name}
    assert mine and all(torch.equal(value, again.state_dict()[name]) for name, value in mine.items())


def test_of_a_model_without_save_pretrained(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    export_model(tmp_path / "out", model)
    assert torch.equal(load_file(tmp_path / "out" / "model.safetensors")["weight"], model.weight)


def test_of_such_a_model_shared_weights_once(tmp_path: Path) -> None:
    def tied() -> nn.Sequential:
        model = nn.Sequential(nn.Embedding(50, 8), nn.Linear(8, 50, bias=False))
        model[1].weight = model[0].weight
        return model

    model, again = tied(), tied()
    export_model(tmp_path / "out", model)
    assert list(load_file(tmp_path / "out" / "model.safetensors")) == ["0.weight"]
    assert load_model(again, tmp_path / "out" / "model.safetensors") == (set(), [])
    assert torch.equal(again[1].weight, model[0].weight)


def test_to_a_url(tmp_path: Path) -> None:
    export_model(f"file://{tmp_path}/out", _llama())
    assert transformers.LlamaForCausalLM.from_pretrained(tmp_path / "out").config.hidden_size == 16
    assert faults_of(tmp_path / "out") == []


def test_nothing_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(SaveError, match="nothing is written over"):
        export_model(tmp_path / "out", nn.Linear(1, 1))


def test_what_failed_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("the disk is full")

    monkeypatch.setattr("fullstep.resume.export.seal", fail)
    with pytest.raises(SaveError, match="the disk is full"):
        export_model(tmp_path / "out", nn.Linear(1, 1))
    monkeypatch.undo()
    export_model(tmp_path / "out", nn.Linear(1, 1))
