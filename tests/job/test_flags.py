"""Keys as flags, over a file or instead of one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fullstep.errors import InputError
from fullstep.job import apply_overrides, complete, flag_overrides, set_overrides, worksheet_flags, worksheet_from_mapping
from fullstep.job.keys import KEYS


def test_every_key_has_one_flag_of_its_own() -> None:
    flags = worksheet_flags()
    assert [flag.dotted for flag in flags] == [key.dotted for key in KEYS if key.section]
    assert len({flag.flag for flag in flags}) == len(flags)


@pytest.mark.parametrize(
    ("flag", "dotted"),
    [
        ("--model", "model.name"), ("--config", "model.config"), ("--method", "method.kind"), ("--optimizer", "optimizer.name"),
        ("--gpu", "machine.gpu"), ("--gpus", "machine.gpus"), ("--strategy", "layout.strategy"),
        ("--sequence-tokens", "batch.sequence_tokens"), ("--micro-batch", "batch.micro_batch"),
        ("--evaluation-micro-batch", "evaluation.micro_batch"), ("--optimizer-implementation", "optimizer.implementation"),
        ("--layout-implementation", "layout.implementation"), ("--weights", "precision.weights"), ("--data-steps", "data.steps"),
    ],
)  # fmt: skip
def test_names_of_flags(flag: str, dotted: str) -> None:
    assert {one.dotted: one.flag for one in worksheet_flags()}[dotted] == flag


@pytest.mark.parametrize(
    ("dotted", "text", "value"),
    [
        ("batch.micro_batch", "4", 4),
        ("batch.sequence_tokens", "4_096", 4096),
        ("method.dropout", "0.1", 0.1),
        ("data.tokens", "1e9", 1e9),
        ("step.compile", "true", True),
        ("step.compile", "no", False),
        ("layout.reshard_after_forward", "8", 8),
        ("layout.strategy", "ddp", "ddp"),
        ("machine.gpus", "8x", "8x"),
        ("machine.gpu_memory_gib", "80GB", "80GB"),
        ("machine.gpu_memory_gib", "79.6", 79.6),
        ("step.framework_version", "4.50", "4.50"),
        ("method.targets", "all-linear", "all-linear"),
        ("method.targets", "q_proj, v_proj", ["q_proj", "v_proj"]),
        ("method.targets", '["q_proj"]', ["q_proj"]),
        ("model.config", '{model_type = "gpt2"}', {"model_type": "gpt2"}),
        ("step.activation_checkpointing", "2", 2),
        ("batch.micro_batch", "[" * 5000, "[" * 5000),
    ],
    ids=lambda value: str(value)[:30],
)
def test_texts_become_values(dotted: str, text: str, value: Any) -> None:
    assert flag_overrides([(dotted, text)]) == {dotted: value}


def test_a_config_path_starts_from_where_the_command_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert flag_overrides([("model.config", "config.json")]) == {"model.config": str(tmp_path / "config.json")}


def test_set_takes_key_and_value() -> None:
    assert set_overrides(["layout.strategy=ddp", "strategy = fsdp"]) == {"layout.strategy": " fsdp".strip()}
    with pytest.raises(InputError) as caught:
        set_overrides(["layout.strategyy=ddp"])
    assert 'Did you mean "layout.strategy"?' in str(caught.value)
    with pytest.raises(InputError, match="key=value"):
        set_overrides(["ddp"])
    with pytest.raises(InputError, match=r"batch\.micro_batch or evaluation\.micro_batch"):
        set_overrides(["micro_batch=2"])


def test_flags_lie_over_a_worksheet_and_leave_it_alone() -> None:
    mapping = {"model": {"name": "gpt2", "config": "elsewhere.json"}, "batch": {"accumulation": 4, "micro_batch": 2}}
    merged = apply_overrides(mapping, {"model.name": "gpt2", "batch.global_rows": 32, "layout.strategy": "single", "schema": 1})
    assert merged == {
        "model": {"name": "gpt2"}, "batch": {"micro_batch": 2, "global_rows": 32}, "layout": {"strategy": "single"}, "schema": 1,
    }  # fmt: skip
    assert mapping["batch"] == {"accumulation": 4, "micro_batch": 2}


def test_flags_alone_make_a_job() -> None:
    pairs = [
        ("model.name", "meta-llama/Llama-3.1-8B"), ("method.kind", "lora"), ("machine.gpu", "H100-SXM"), ("machine.gpus", "8"),
        ("batch.sequence_tokens", "4096"),
    ]  # fmt: skip
    it = complete(worksheet_from_mapping(apply_overrides({}, flag_overrides(pairs)), "flags"))
    assert (it.method.kind, it.machine.gpus, it.batch.sequence_tokens, it.layout.strategy) == ("lora", 8, 4096, "fsdp")
