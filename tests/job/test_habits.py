"""Habits of frameworks by version: which row of the table holds when, and that each has a source."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tiny_jobs import job

import fullstep.job
from fullstep.job.habits import habits_of, holds, transformers_numbers, version_numbers
from fullstep.job.keys import FRAMEWORKS

TABLE = json.loads((Path(fullstep.job.__file__).parent / "data" / "habits.json").read_text(encoding="utf-8"))["frameworks"]


def test_every_framework_has_habits_with_sources() -> None:
    assert set(TABLE) == set(FRAMEWORKS)
    for framework in FRAMEWORKS:
        found = habits_of(framework, None, "torch", "")
        assert found.one_dtype is (framework == "fsdp_qlora")
        assert set(found.reasons) - {"one_dtype"} == {"loss_input_dtype", "keeps_outputs", "gradients_cleared", "loading"}
        assert all(row["source"] and row["why"] for row in TABLE[framework]["rows"])


@pytest.mark.parametrize("version", ["4.45.2", "4.48.1", "4.57.6", "5.0.0", None])
def test_the_trainer_lets_go_of_the_outputs_in_every_version(version: str | None) -> None:
    """``compute_loss`` returns the loss alone; published runs with 4.48.1 agree within 2 %."""
    assert habits_of("transformers", version, "torch", "").keeps_outputs is False


def test_rows_hold_from_a_version_below_another() -> None:
    row = {"from": "4.46", "below": "5", "sharded": "fsdp"}
    held = [
        version for version in ("4.45.2", "4.46", "4.57.6", "5", "5.1", "newest") if holds(row, version_numbers(version), "fsdp2", "fsdp")
    ]
    assert held == ["4.46", "4.57.6"]
    assert not holds(row, (4, 50), "deepspeed", "zero")


def test_gradients_stay_between_steps_under_accelerate_with_fsdp1() -> None:
    for framework in ("transformers", "axolotl", "llamafactory", "fms_acceleration"):
        assert habits_of(framework, None, "fsdp1", "fsdp").gradients_cleared == "before_backward"
        assert habits_of(framework, None, "fsdp2", "fsdp").gradients_cleared == "after_step"
    assert habits_of("torchtitan", None, "fsdp2", "fsdp").gradients_cleared == "after_step"


def test_versions_compare_as_numbers() -> None:
    assert version_numbers("4.9") < version_numbers("4.10.1") < version_numbers("5.0.0.dev0") < version_numbers("newest")
    assert transformers_numbers("axolotl", "0.9") == version_numbers(TABLE["transformers"]["newest"])
    assert transformers_numbers("litgpt", "0.5") is None


def test_fsdp_qlora_trains_and_reduces_in_the_dtype_of_its_weights() -> None:
    """README.md of AnswerDotAI/fsdp_qlora: pure bfloat16 is the default; its models are those of transformers 4.37."""
    keys = {"method__kind": "qlora", "step__framework": "fsdp_qlora", "layout__strategy": "fsdp", "machine__gpus": 2}
    it = job(**keys)
    assert (it.precision.adapters, it.precision.gradients, it.precision.reduce) == ("bfloat16", "bfloat16", "bfloat16")
    assert job(**keys, precision__adapters="float32").precision.adapters == "float32"
    assert transformers_numbers("fsdp_qlora", "newest") == (4, 37)


def test_a_habit_stated_by_hand_wins() -> None:
    it = job(step__framework_version="4.48.1", step__keeps_outputs=True, step__loss_input_dtype="bf16")
    assert it.step.keeps_outputs is True
    assert it.step.loss_input_dtype == "bfloat16"
    assert it.step.framework_version == "4.48.1"
    listed = {assumption.key: assumption for assumption in it.assumptions}
    assert "step.keeps_outputs" not in listed
    assert listed["step.gradients_cleared"].why.startswith("transformers 4.48.1: ")
