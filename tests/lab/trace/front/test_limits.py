"""What a trace does not cover is said by name before torch is loaded."""

from __future__ import annotations

from typing import Any

import pytest

from fullstep.errors import UnsupportedError
from fullstep.job import Settings, settings_of, worksheet_from_mapping
from fullstep.lab.trace.front import step
from fullstep.lab.trace.front.limits import faults_of

CONFIG = {
    "model_type": "llama", "hidden_size": 512, "vocab_size": 1024, "num_hidden_layers": 1, "num_attention_heads": 8,
    "intermediate_size": 512,
}  # fmt: skip
TWO = {"gpu": "H100-SXM", "gpus": 2}
FLAT = {"strategy": "fsdp", "implementation": "fsdp1"}


def settings(**sections: Any) -> Settings:
    return settings_of(worksheet_from_mapping({"model": {"config": CONFIG}, **sections}))


@pytest.mark.parametrize(
    ("sections", "where"),
    [
        ({"optimizer": {"name": "apollo"}}, "optimizer.name"),
        ({"optimizer": {"state_dtype": "float32"}}, "optimizer.state_dtype"),
        ({"precision": {"master_weights": True}}, "precision.master_weights"),
        ({"optimizer": {"in_backward": True}, "layout": {"strategy": "ddp"}, "machine": TWO}, "optimizer.in_backward"),
        ({"optimizer": {"name": "adafactor"}, "machine": TWO}, "optimizer.name"),
        ({"method": {"kind": "lora", "objective": "dpo"}}, "method.objective"),
        ({"method": {"kind": "qlora", "quantization": "gptq"}}, "method.quantization"),
        ({"method": {"kind": "hira", "quantization": "nf4"}}, "method.quantization"),
        ({"method": {"kind": "bone"}}, "method.kind"),
        ({"method": {"kind": "prefix_tuning"}, "step": {"activation_checkpointing": "full"}}, "step.activation_checkpointing"),
        ({"layout": {"strategy": "zero2"}, "machine": TWO}, "layout.strategy"),
        ({"layout": FLAT | {"offload_parameters": True}, "machine": TWO}, "layout.offload_parameters"),
        ({"step": {"compile": True}}, "step.compile"),
    ],
)  # fmt: skip
def test_what_is_not_traced_is_refused_by_its_key(sections: dict[str, Any], where: str) -> None:
    assert where in [fault.where for fault in faults_of(settings(**sections))]


@pytest.mark.parametrize(
    "sections",
    [
        {},
        {"optimizer": {"name": "paged_adamw", "state_dtype": "float32"}},
        {"optimizer": {"name": "adamw_8bit", "state_dtype": "int8"}},
        {"method": {"kind": "qlora"}},
        {"method": {"kind": "oft", "quantization": "nf4"}},
        {"layout": FLAT, "machine": TWO},
    ],
)
def test_states_and_layouts_as_the_libraries_have_them_pass(sections: dict[str, Any]) -> None:
    assert faults_of(settings(**sections)) == []


def test_a_refusal_starts_no_worker_and_needs_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("require_libraries", "started"):
        monkeypatch.delattr(step, name)
    told = worksheet_from_mapping({"model": {"config": CONFIG}, "optimizer": {"name": "galore"}, "step": {"compile": True}})
    with pytest.raises(UnsupportedError) as caught:
        step.trace_step(settings_of(told), CONFIG, "test")
    assert [fault.where for fault in caught.value.faults] == ["worksheet: optimizer.name", "worksheet: step.compile"]
    assert all(fault.allowed for fault in caught.value.faults)
