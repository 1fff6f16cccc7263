"""What cannot be drilled is refused by its key, before anything starts."""

from __future__ import annotations

from typing import Any

import pytest

from fullstep.job import settings_of, worksheet_from_mapping
from fullstep.lab.drill.front.limits import faults_of, notes_of

FULL = {"kind": "full"}


def settings(**sections: Any) -> Any:
    return settings_of(worksheet_from_mapping({"model": {"name": "gpt2"}, "machine": {"gpus": 2}, "method": FULL, **sections}))


@pytest.mark.parametrize(
    ("sections", "where"),
    [
        ({"method": {"kind": "qlora"}}, ["method.quantization"]),
        ({"method": {"kind": "lora", "quantization": "int8"}}, ["method.quantization"]),
        ({"layout": {"strategy": "zero3"}}, ["layout.strategy"]),
        ({"layout": {"strategy": "fsdp", "implementation": "fsdp1"}}, ["layout.implementation"]),
        ({"layout": {"tensor": 2}}, ["layout.tensor"]),
        ({"optimizer": {"name": "adamw_8bit"}}, ["optimizer.name"]),
        ({"optimizer": {"name": "muon"}}, ["optimizer.name"]),
        ({"optimizer": {"in_backward": True}}, ["optimizer.in_backward"]),
        ({"optimizer": {"state_dtype": "float32"}, "precision": {"weights": "bfloat16"}}, ["optimizer.state_dtype"]),
        ({"precision": {"compute": "float16", "weights": "float32"}}, ["precision.compute"]),
        ({"method": {"kind": "full", "objective": "dpo"}}, ["method.objective"]),
    ],
    ids=lambda value: str(value) if isinstance(value, list) else "",
)
def test_what_is_refused(sections: dict[str, Any], where: list[str]) -> None:
    found = faults_of(settings(**sections))
    beside = () if "layout.strategy" not in where else ("optimizer.implementation", "precision.master_weights")
    assert [fault.where for fault in found if fault.where not in beside] == where
    assert all(fault.found and fault.allowed for fault in found)


@pytest.mark.parametrize(
    ("method", "remedy"),
    [({"kind": "qlora"}, "method.kind = lora over a base"), ({"kind": "lora", "quantization": "int8"}, "lora over a base")],
)
def test_a_quantized_base_is_told_what_would_do(method: dict[str, str], remedy: str) -> None:
    """Following it leaves nothing that is refused."""
    assert faults_of(settings(method=method))[0].remedy.startswith(remedy)
    assert faults_of(settings(method={"kind": "lora"})) == []


@pytest.mark.parametrize("strategy", ["ddp", "fsdp", "fsdp_grad_op", "hsdp"])
@pytest.mark.parametrize("kind", ["full", "lora"])
def test_what_is_taken(strategy: str, kind: str) -> None:
    assert faults_of(settings(layout={"strategy": strategy}, method={"kind": kind}, optimizer={"name": "sgd_momentum"})) == []


def test_what_runs_in_the_place_of_something_else_is_said() -> None:
    step = {"loss": "fused", "attention": "flash", "compile": True}
    machine = {"gpu": "H100-SXM", "gpus": 2}
    assert len(notes_of(settings(step=step, machine=machine), "cpu")) == 4
    assert notes_of(settings(machine=machine), "cuda") == []
