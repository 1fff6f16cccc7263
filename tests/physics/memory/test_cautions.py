"""When a caution is worth saying."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fullstep.job import Job, complete, worksheet_from_mapping
from fullstep.physics import estimate_memory

Make = Callable[..., Job]
LOSS = {"method__kind": "lora", "step__activation_checkpointing": "full", "batch__sequence_tokens": 16_384}


def codes(job: Job) -> list[str]:
    return [caution.code for caution in estimate_memory(job).cautions]


def test_a_loss_that_is_the_largest_part_of_the_peak(eight_billion: Make) -> None:
    """12 bytes x 16,384 tokens x 128,256 words are 23.5 GiB, the weights 15."""
    assert codes(eight_billion(**LOSS)) == ["F100"]
    assert codes(eight_billion(**LOSS, step__loss="fused")) == []
    assert codes(eight_billion()) == []  # its peak is the optimizer step


def test_padded_rows_of_which_the_longest_decides(eight_billion: Make) -> None:
    padded = {"batch__packed": False, "batch__mean_sample_tokens": 500}
    assert codes(eight_billion(**padded)) == ["F101"]
    assert codes(eight_billion(batch__packed=False)) == []


@pytest.mark.parametrize(("version", "expected"), [("5.0.0", ["F102"]), ("4.57.0", [])])
def test_adapters_on_stacked_experts(version: str, expected: list[str]) -> None:
    """Named as a target, a stacked parameter gets whole matrices from peft; one module per expert is an ordinary linear."""
    mapping: dict[str, Any] = {
        "model": {"config": {"model_type": "mixtral", "num_hidden_layers": 2}},
        "method": {"kind": "lora", "targets": ["q_proj", "experts", "gate_up_proj", "w1"]},
        "step": {"framework_version": version},
    }
    assert [code for code in codes(complete(worksheet_from_mapping(mapping, "mixtral"))) if code == "F102"] == expected


def test_experts_that_4_bit_layers_do_not_replace() -> None:
    mapping: dict[str, Any] = {
        "model": {"config": {"model_type": "mixtral", "num_hidden_layers": 2}},
        "method": {"kind": "qlora", "targets": ["q_proj"]},
    }
    assert "F103" in codes(complete(worksheet_from_mapping(mapping, "mixtral")))
    modules = mapping | {"step": {"framework_version": "4.57.0"}}
    assert "F103" not in codes(complete(worksheet_from_mapping(modules, "mixtral")))


def test_whole_score_matrices_that_nobody_asked_for(eight_billion: Make) -> None:
    wide = {"precision__weights": "float32", "precision__compute": "float32"}
    assert "F104" in codes(eight_billion(**wide))
    assert "F104" in codes(eight_billion(model__name="google/gemma-2-9b"))
    assert "F104" not in codes(eight_billion(model__name="google/gemma-2-9b", step__attention="flash"))
    assert "F104" not in codes(eight_billion(**wide, step__attention="eager"))
