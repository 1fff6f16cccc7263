"""Settings: a worksheet completed for a trace, which asks the model's own class instead of the formulas."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, get_args

import pytest
from tiny_jobs import LLAMA, job

from fullstep.errors import InputError, UnsupportedError
from fullstep.job import Job, Settings, complete, settings_of, worksheet_from_mapping
from fullstep.job.job import MethodKind, Objective
from fullstep.job.keys import COVERED_METHODS, COVERED_OBJECTIVES, REFUSED_OBJECTIVES, TRACED_METHODS

UNKNOWN = {"model_type": "not_a_type_of_the_formulas", "hidden_size": 64}


def settings(config: dict[str, Any] = UNKNOWN, **sections: dict[str, Any]) -> Settings:
    return settings_of(worksheet_from_mapping({"model": {"config": config}, **sections}, "job.toml"))


@pytest.mark.parametrize(
    "sections",
    [
        {},
        {"method": {"kind": "qlora", "targets": ["q_proj"], "rank": 8}},
        {"machine": {"gpu": "H100-SXM", "gpus": 8, "nodes": 2}, "layout": {"strategy": "hsdp"}, "batch": {"global_rows": 64}},
        {"method": {"kind": "lora"}, "step": {"activation_checkpointing": "full"}, "precision": {"weights": "float32"}},
    ],
)
def test_settings_are_the_job_without_its_shape(sections: dict[str, Any]) -> None:
    worksheet = worksheet_from_mapping({"model": {"config": LLAMA}, **sections})
    whole, without = complete(worksheet), settings_of(worksheet)
    assert type(without) is Settings
    assert [field.name for field in fields(Job)] == [*(field.name for field in fields(Settings)), "shape"]
    for field in fields(Settings):
        assert getattr(whole, field.name) == getattr(without, field.name)


def test_a_job_is_settings_too() -> None:
    it = job()
    assert isinstance(it, Settings)
    assert not hasattr(it, "__dict__")


def test_a_model_type_that_the_formulas_do_not_know() -> None:
    assert settings().method.kind == "full"
    with pytest.raises(UnsupportedError):
        complete(worksheet_from_mapping({"model": {"config": UNKNOWN}}))


@pytest.mark.parametrize(
    ("stated", "targets"),
    [
        ({}, ()),
        ({"targets": "all-linear"}, ("all-linear",)),
        ({"targets": ["Wqkv", "layers.3.out"]}, ("Wqkv", "layers.3.out")),
    ],
)
def test_targets_are_as_stated_where_the_model_is_not_known(stated: dict[str, Any], targets: tuple[str, ...]) -> None:
    it = settings(method={"kind": "lora", **stated})
    assert it.method.targets == targets
    assert ("method.targets" in {assumption.key for assumption in it.assumptions}) is (not stated)


@pytest.mark.parametrize("kind", TRACED_METHODS)
def test_every_kind_of_peft(kind: str) -> None:
    assert settings(LLAMA, method={"kind": kind, "targets": ["input_layernorm"]}).method.targets == ("input_layernorm",)
    assert settings(LLAMA, method={"kind": kind}).method.kind == kind


def test_prefix_tuning_has_no_targets_in_any_model() -> None:
    it = settings(method={"kind": "prefix_tuning", "targets": ["q_proj"]})
    assert it.method.targets == ()
    assert [code for code, _ in it.cautions] == ["F001"]


def test_degrees_and_objectives_that_the_formulas_do_not_cover() -> None:
    it = settings(LLAMA, layout={"tensor": 2}, machine={"gpus": 8}, method={"objective": "grpo"})
    assert (it.layout.tensor, it.layout.data_parallel, it.method.objective) == (2, 4, "grpo")


def test_faults_come_together_and_without_what_is_merely_not_covered() -> None:
    wrong = {"layout": {"strategy": "single", "tensor": 2}, "machine": {"gpu": "H1000", "gpus": 8}, "method": {"kind": "vera"}}
    with pytest.raises(InputError) as caught:
        settings(**wrong)
    assert not isinstance(caught.value, UnsupportedError)
    assert [fault.where for fault in caught.value.faults] == ["job.toml: layout.strategy", "job.toml: machine.gpu"]


def test_a_config_at_fault_is_a_fault() -> None:
    with pytest.raises(InputError, match=r"^job\.toml: model\.config: hidden_size: "):
        settings({**LLAMA, "hidden_size": -4})
    with pytest.raises(InputError, match="no-such-model"):
        settings_of(worksheet_from_mapping({"model": {"name": "no-such-model"}}))


def test_types_admit_every_word_of_the_worksheet() -> None:
    assert get_args(MethodKind) == COVERED_METHODS + TRACED_METHODS
    assert get_args(Objective) == COVERED_OBJECTIVES + REFUSED_OBJECTIVES
