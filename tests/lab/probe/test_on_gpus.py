"""Probes on the GPUs of this machine; skipped where there are none."""

from __future__ import annotations

from typing import Any

import pytest

from fullstep.api.probed import Probed, probe
from fullstep.job import worksheet_from_mapping

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.real_classes,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]
MODEL = {
    "model_type": "llama", "vocab_size": 32_000, "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 8,
    "num_attention_heads": 16, "num_key_value_heads": 8,
}  # fmt: skip
STEP = ("forward", "loss", "backward", "second_forward", "optimizer_step")


def _probed(method: dict[str, Any], **settings: Any) -> Probed:
    sheet = {"model": {"config": MODEL}, "method": method, "batch": {"sequence_tokens": 1024, "micro_batch": 2, "accumulation": 2}}
    return probe(worksheet_from_mapping(sheet), **settings)


@pytest.mark.parametrize("method", [{"kind": "full"}, {"kind": "lora", "rank": 16}], ids=["full", "lora"])
def test_every_instant_is_the_traced_one(method: dict[str, Any]) -> None:
    found = _probed(method, steps=6)
    assert found.probe.outcome == "completed"
    lines = {line.what: line for line in found.lines}
    for at in STEP:
        assert lines[at].traced == pytest.approx(lines[at].measured, rel=0.02), at
    allocated, reserved, used = (
        found.probe.largest(counter) for counter in ("allocated_peak_bytes", "reserved_peak_bytes", "device_used_bytes")
    )
    assert allocated is not None and reserved is not None and used is not None
    assert allocated <= reserved < used
    for rank in found.probe.ranks:
        assert len(rank.steps) == 4 and len(rank.overlap) == 2
        assert all(0 < each.compute_seconds <= each.step_seconds for each in rank.overlap)


def test_a_limit_that_is_too_small() -> None:
    ran_out = _probed({"kind": "full"}, steps=3, traces=False, limit_gib=1.0).probe.out_of_memory
    assert ran_out is not None and ran_out.asked_bytes is not None
    assert ran_out.allocated_bytes is not None and ran_out.allocated_bytes <= 2**30


def test_a_compiled_model_holds_less() -> None:
    sheet = {"model": {"config": MODEL}, "batch": {"sequence_tokens": 1024, "micro_batch": 2}, "step": {"compile": True}}
    found = probe(worksheet_from_mapping(sheet), steps=6, traces=False).probe
    assert found.outcome == "completed" and "compile" in {stretch.phase for stretch in found.ranks[0].memory}
    plain = probe(worksheet_from_mapping({**sheet, "step": {}}), steps=6, traces=False).probe
    steady = [
        max(stretch.allocated_peak_bytes for stretch in each.ranks[0].memory if stretch.step == 2 and stretch.phase == "backward")
        for each in (found, plain)
    ]
    assert steady[0] < steady[1]
    seconds = found.step_seconds
    assert max(seconds) < 3 * min(seconds)  # none of them was compiled again
