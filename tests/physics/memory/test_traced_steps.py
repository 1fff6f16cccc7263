"""The estimate of a step beside traces of the real classes: peaks of loss, backward and optimizer step.

``traced_steps.jsonl``: its first line says how the traces were made; every other one is a worksheet with its peaks, how near the
estimate must come, and why where that is not 1 %. Phases that are left out name their reason.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fullstep.hardware import device_overheads
from fullstep.job import complete, worksheet_from_mapping
from fullstep.physics import estimate_memory

LINES = (Path(__file__).parent / "traced_steps.jsonl").read_text(encoding="utf-8").splitlines()
CASES: list[dict[str, Any]] = [json.loads(line) for line in LINES[1:]]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_peaks_of_the_phases(case: dict[str, Any]) -> None:
    job = complete(worksheet_from_mapping(case["worksheet"], case["case"]))
    workspaces = device_overheads(job.machine.card).cublas_workspace_bytes  # the traces do not count them
    found = {instant.at: instant.allocated_bytes - workspaces for instant in estimate_memory(job).instants}
    apart = {at: found[at] / traced - 1 for at, traced in case["peaks_bytes"].items()}
    assert {at: share for at, share in apart.items() if abs(share) > case["tolerance"]} == {}


def test_the_traces_say_how_they_were_made() -> None:
    made = json.loads(LINES[0])
    assert {"transformers", "torch", "peft"} <= set(made["made_with"])
    for case in CASES:
        assert case["tolerance"] <= 0.01 or case["because"], case["case"]
        assert set(case["peaks_bytes"]) | set(case.get("left_out", {})) == {"loss", "backward", "optimizer_step"}, case["case"]


def test_every_way_of_training_is_traced() -> None:
    jobs = [complete(worksheet_from_mapping(case["worksheet"], case["case"])) for case in CASES]
    assert {"full", "lora", "qlora", "dora", "ia3", "prefix_tuning"} <= {job.method.kind for job in jobs}
    assert {"single", "ddp", "fsdp", "hsdp"} <= {job.layout.strategy for job in jobs}
    assert {"none", "full", 2} <= {job.step.activation_checkpointing for job in jobs}
    assert {"eager", "sdpa", "flash"} == {job.step.attention for job in jobs}
    assert len({job.shape.model_type for job in jobs}) >= 20
