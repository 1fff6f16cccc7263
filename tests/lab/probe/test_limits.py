"""What cannot be probed is refused by its key, before anything starts; what is probed in another way is said."""

from __future__ import annotations

from typing import Any

import pytest

from fullstep.job import settings_of, worksheet_from_mapping
from fullstep.lab import buildable
from fullstep.lab.probe.front.limits import faults_of, notes_of


def settings(**sections: Any) -> Any:
    return settings_of(
        worksheet_from_mapping({"model": {"name": "gpt2"}, "machine": {"gpus": 2}, "layout": {"strategy": "ddp"}, **sections})
    )


@pytest.fixture
def with_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buildable, "find_spec", lambda name: name)


@pytest.mark.usefixtures("with_libraries")
@pytest.mark.parametrize(
    ("sections", "where"),
    [
        ({"method": {"kind": "lora", "quantization": "gptq"}}, "method.quantization"),
        ({"method": {"kind": "loha", "quantization": "nf4"}}, "method.quantization"),
        ({"method": {"kind": "lora", "quantization": "int8"}, "layout": {"strategy": "fsdp"}}, "method.quantization"),
        ({"optimizer": {"name": "galore"}}, "optimizer.name"),
        ({"optimizer": {"name": "adafactor"}, "layout": {"strategy": "fsdp"}}, "optimizer.name"),
        ({"optimizer": {"name": "adamw_8bit"}, "layout": {"strategy": "fsdp"}}, "optimizer.name"),
        ({"optimizer": {"name": "paged_adamw", "state_dtype": "bfloat16"}}, "optimizer.state_dtype"),
        ({"optimizer": {"state_dtype": "float32"}}, "optimizer.state_dtype"),
        ({"optimizer": {"in_backward": True}}, "optimizer.in_backward"),
        ({"precision": {"compute": "float16"}}, "precision.compute"),
        ({"step": {"loss": "fused"}}, "step.loss"),
        ({"step": {"activation_offload": True}}, "step.activation_offload"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_refused(sections: dict[str, Any], where: str) -> None:
    (fault,) = faults_of(settings(**sections))
    assert fault.where == where and "cannot be probed yet" in fault.found and fault.allowed


@pytest.mark.usefixtures("with_libraries")
@pytest.mark.parametrize(
    "sections",
    [
        {"method": {"kind": "qlora"}},
        {"method": {"kind": "qlora", "quantization": "fp4"}, "layout": {"strategy": "fsdp"}},
        {"method": {"kind": "ia3", "quantization": "int8"}},
        {"step": {"compile": True}},
        {"step": {"compile": True}, "layout": {"strategy": "hsdp"}},
        *({"optimizer": {"name": name}} for name in buildable.MORE_OPTIMIZERS),
        *({"optimizer": {"name": name}, "layout": {"strategy": "fsdp"}} for name in ("muon", "lion")),
    ],
    ids=str,
)
def test_what_is_taken(sections: dict[str, Any]) -> None:
    assert faults_of(settings(**sections)) == []


def test_a_library_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buildable, "find_spec", lambda _: None)
    base, states = faults_of(settings(method={"kind": "qlora"}, optimizer={"name": "lion"}))
    assert (base.where, base.remedy) == ("method.quantization", "pip install bitsandbytes")
    assert (states.where, states.remedy) == ("optimizer.name", "pip install lion-pytorch")
    assert "not installed" in base.found and "not installed" in states.found
    assert [fault.remedy for fault in faults_of(settings(optimizer={"name": "adamw_8bit"}))] == ["pip install bitsandbytes"]
    assert [fault.remedy for fault in faults_of(settings(optimizer={"name": "adamw_4bit"}))] == ["pip install torchao"]
    assert faults_of(settings(optimizer={"name": "muon"})) == []


def test_notes() -> None:
    step = {"compile": True}
    assert notes_of(settings(step=step), "cuda") == ["compiled as a whole: the loss counts as a part of forward"]
    assert notes_of(settings(step=step, layout={"strategy": "fsdp"}), "cuda") == ["each block is compiled by itself; head and loss are not"]
    by_block = notes_of(settings(step={"compile": True, "framework": "torchtune"}), "cuda")
    assert "each block is compiled by itself; head and loss are not" in by_block
    on_processors = " ".join(notes_of(settings(method={"kind": "qlora"}, optimizer={"name": "paged_adamw_8bit"}), "cpu"))
    assert "nothing is paged" in on_processors and "loading holds the base at full width" in on_processors
    assert "compiled for processors" in " ".join(notes_of(settings(step=step), "cpu"))


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"precision": {"weights": "float32", "compute": "bfloat16"}}, "autocast of processors leaves norms"),
        ({"precision": {"weights": "float32", "compute": "float32"}}, "takes grouped keys in float32"),
    ],
)
def test_kernels_of_processors_are_told_where_they_hold_something_else(sections: dict[str, Any], said: str) -> None:
    assert any(said in note for note in notes_of(settings(**sections), "cpu"))
    assert not any(said in note for note in (*notes_of(settings(**sections), "cuda"), *notes_of(settings(), "cpu")))


@pytest.mark.parametrize("elsewhere", [False, True])
def test_libraries_count_where_it_runs(elsewhere: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buildable, "find_spec", lambda _: None)
    assert bool(faults_of(settings(method={"kind": "qlora"}), elsewhere=elsewhere)) is not elsewhere
