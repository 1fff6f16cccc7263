"""One message for everything that is wrong: what cannot be read, what is not there, what contradicts itself, what is not covered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tiny_jobs import LLAMA

from fullstep.api import compare
from fullstep.cli import main
from fullstep.errors import InputError, UnsupportedError
from fullstep.job import complete, worksheet_from_mapping


def places(mapping: dict[str, Any]) -> list[str]:
    """The keys of all faults."""
    with pytest.raises(InputError) as caught:
        complete(worksheet_from_mapping(mapping, "job.toml"))
    return [fault.where.removeprefix("job.toml: ") for fault in caught.value.faults]


def test_reading_and_looking_up() -> None:
    wrong = {"model": {"name": "gpt3"}, "method": {"kind": "lra", "rnk": 4}, "machine": {"gpu": "H1000"}}
    assert places(wrong) == ["method.kind", "method.rnk", "model.name", "machine.gpu"]


def test_looking_up_and_what_is_not_covered() -> None:
    wrong = {
        "model": {"name": "foo/bar"}, "method": {"kind": "lora", "objective": "grpo", "targets": ["nope"]},
        "layout": {"tensor": 2}, "machine": {"gpus": 2}, "batch": {"accumulation": 2}, "optimizer": {"in_backward": True},
    }  # fmt: skip
    assert sorted(places(wrong)) == ["method.objective", "model.name", "optimizer.in_backward"]


def test_what_is_not_covered_alone_is_no_fault_of_the_worksheet() -> None:
    with pytest.raises(UnsupportedError):
        complete(worksheet_from_mapping({"model": {"config": LLAMA}, "method": {"objective": "grpo"}}))


@pytest.mark.parametrize(
    ("sections", "faulty"),
    [
        ({"method": {"kind": "lra", "quantization": "nf4", "targets": ["nope"]}}, ["method.kind"]),
        ({"machine": {"gpus": "eight"}, "layout": {"shards": 8}, "batch": {"global_rows": 7}}, ["machine.gpus"]),
        ({"machine": {"gpuss": 8}, "layout": {"shards": 8, "strategy": "fsdp"}}, ["machine.gpuss"]),
        ({"machine": 5, "layout": {"shards": 8, "tensor": 2}}, ["machine"]),
        ({"machine": {"gpu": "0xH100-SXM"}, "layout": {"shards": 8}}, ["machine.gpu"]),
        ({"machine": {"gpu": "8xH100-SXM", "gpus": 4}, "layout": {"shards": 8}}, ["machine.gpu"]),
        ({"batch": {"micro_batch": "x", "global_rows": 7, "accumulation": 5}}, ["batch.micro_batch"]),
        ({"batch": {"micro_batch": 3, "global_rows": 7}, "step": {"attention": "x"}}, ["step.attention", "batch.global_rows"]),
        ({"batch": {"sequence_tokens": 0, "packed": False, "mean_sample_tokens": 4000}}, ["batch.sequence_tokens"]),
        ({"batch": {"accumulation": 0}, "optimizer": {"in_backward": True}}, ["batch.accumulation"]),
        ({"precision": {"weights": "x", "master_weights": True, "compute": "fp32"}, "step": {"attention": "flash"}}, ["precision.weights"]),
        ({"layout": {"strategy": "x", "implementation": "fsdp1", "shards": 4}}, ["layout.strategy"]),
        ({"layout": {"shards": "x", "strategy": "fsdp", "reshard_after_forward": 3}, "machine": {"gpus": 8}}, ["layout.shards"]),
        ({"machine": {"gpu": "T4", "gpu_memory_gib": "48G"}, "measured": {"allocated_peak_gib": 40}}, ["machine.gpu_memory_gib"]),
        ({"optimizer": {"name": "x", "implementation": "fused"}}, ["optimizer.name"]),
        ({"step": {"micro_batch": 3}, "batch": {"global_rows": 8}, "machine": {"gpus": 8}}, ["step.micro_batch"]),
    ],
)
def test_nothing_follows_from_a_key_that_could_not_be_read(sections: dict[str, Any], faulty: list[str]) -> None:
    assert places({"model": {"config": LLAMA}, **sections}) == faulty


@pytest.mark.parametrize(
    ("model", "faulty"),
    [
        ({"model": {"nmae": "gpt2"}}, ["model.nmae"]),
        ({"modle": {"name": "gpt2"}}, ["modle"]),
        ({"model": {"name": 5}}, ["model.name"]),
        ({"model": {"config": 5, "name": "my-own"}}, ["model.config"]),
        ({"model": {"config": {**LLAMA, "hidden_size": 0}, "name": "../x"}}, ["model.name", "model.config: hidden_size"]),
        ({"batch": {"micro_batch": 0}}, ["batch.micro_batch", "model"]),
        ({}, ["model"]),
    ],
)
def test_the_model_is_asked_for_where_none_was_meant(model: dict[str, Any], faulty: list[str]) -> None:
    assert places(model) == faulty


def test_several_worksheets_and_flags(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "good.toml").write_text('model.name = "gpt2"\n', encoding="utf-8")
    (tmp_path / "card.toml").write_text('model.name = "gpt2"\nmachine.gpu = "H1000"\n', encoding="utf-8")
    (tmp_path / "word.toml").write_text('model.name = "gpt3"\nmethod.kind = "lra"\n', encoding="utf-8")
    files = [str(tmp_path / name) for name in ("good.toml", "card.toml", "none.toml", "word.toml")]
    assert main(["estimate", *files, "--set", "nonsense", "--set", "x=1"]) == 2
    message = capsys.readouterr().err
    assert message.startswith("fullstep: 6 faults\n")
    for word in ("nonsense", '"x"', "H1000", "none.toml", "lra", "gpt3"):
        assert word in message
    assert main(["plan", files[1], "--set", "nonsense"]) == 2
    assert capsys.readouterr().err.startswith("fullstep: 2 faults\n")


def test_a_comparison_tells_the_faults_of_all() -> None:
    sheets = [worksheet_from_mapping({"model": {"name": "gpt2"}, "machine": {"gpu": card}}) for card in ("H1000", "T4", "B9000")]
    with pytest.raises(InputError) as caught:
        compare(*sheets)
    assert len(caught.value.faults) == 2
