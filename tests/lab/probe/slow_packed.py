"""Probes over packed bases, against their traces. Run by `make test-slow`, which installs bitsandbytes."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from fullstep.api import trace, worksheet_from_mapping
from fullstep.api.probed import probe
from fullstep.hardware import device_overheads
from fullstep.job import settings_of
from fullstep.lab.buildable import OVER_QUANTIZED
from fullstep.lab.probe.task import Task
from fullstep.lab.probe.worker import session
from fullstep.lab.program.real import build_program
from fullstep.ledger.probe import Stretch, instants_of

pytestmark = [pytest.mark.real_classes, pytest.mark.filterwarnings("ignore")]
MODEL: dict[str, Any] = {  # large enough that rounding to 512 bytes is small beside it
    "model_type": "llama", "vocab_size": 2000, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2,
}  # fmt: skip
BASE = 2 * 2000 * 256 + 9 * 256 + 4 * (2 * 256 * 256 + 2 * 128 * 256 + 3 * 512 * 256)
NEAR = {"forward": 0.005, "loss": 0.005, "backward": 0.005, "second_forward": 0.005, "optimizer_step": 0.01}
"""the trace rounds each tensor to 512 bytes, which shows where little is held"""


def _table(layout: str, kind: str, quantization: str, **sections: Any) -> dict[str, Any]:
    method = {"kind": kind, "quantization": quantization}
    batch = {"sequence_tokens": 128, "micro_batch": 2, "accumulation": 2}
    return {"model": {"config": MODEL}, "batch": batch, "layout": {"strategy": layout}, "method": method, **sections}


@pytest.mark.parametrize(
    ("layout", "ranks", "kind", "quantization"),
    [("single", 1, "qlora", "nf4"), ("single", 1, "qlora", "fp4"), ("ddp", 2, "qlora", "nf4"), ("single", 1, "ia3", "nf4")],
    ids=["nf4", "fp4", "ddp of 2", "ia3"],
)
def test_every_instant_is_the_traced_one(layout: str, ranks: int, kind: str, quantization: str) -> None:
    found = probe(worksheet_from_mapping(_table(layout, kind, quantization)), cpu=ranks, steps=3)
    assert found is not None and found.probe.outcome == "completed"
    assert found.probe.parameters == BASE + found.probe.trainable_parameters  # type: ignore[operator]
    lines = {line.what: line for line in found.lines}
    for at, near in NEAR.items():
        assert lines[at].traced == pytest.approx(lines[at].measured, rel=near), at


@pytest.mark.parametrize("quantization", ["nf4", "fp4"])
def test_every_instant_of_shards_is_the_traced_one(quantization: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FSDP2 on a process group that moves nothing: gloo would reduce a copy of gradients, as NCCL does not."""
    table = _table("fsdp", "qlora", quantization, machine={"gpus": 4})
    measured, workspaces = _measured(table, 4, tmp_path, monkeypatch), _workspaces(table)
    instants = {instant.at: instant.allocated_bytes - workspaces for instant in trace(worksheet_from_mapping(table)).memory.instants}
    for at, near in NEAR.items():
        assert instants[at] == pytest.approx(measured[at], rel=near), at


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("quantization", ["nf4", "fp4"])
def test_every_instant_on_gpus_is_the_traced_one(quantization: str) -> None:
    wide = {"vocab_size": 32_000, "hidden_size": 1024, "intermediate_size": 2816, "num_attention_heads": 16, "num_key_value_heads": 8}
    table = _table("single", "qlora", quantization, batch={"sequence_tokens": 1024, "micro_batch": 2, "accumulation": 2})
    found = probe(worksheet_from_mapping(table | {"model": {"config": MODEL | wide}, "layout": {}}), steps=3)
    assert found is not None and found.probe.outcome == "completed"
    lines = {line.what: line for line in found.lines}
    for at in NEAR:
        assert lines[at].traced == pytest.approx(lines[at].measured, rel=0.02), at


@pytest.mark.parametrize("kind", ["lora", "ia3"])
def test_a_base_of_8_bits_runs_under_ddp(kind: str) -> None:
    found = probe(worksheet_from_mapping(_table("ddp", kind, "int8")), cpu=2, steps=3, traces=False)
    assert found is not None and found.probe.outcome == "completed"


@pytest.mark.parametrize("quantization", ["nf4", "int8"])
@pytest.mark.parametrize("kind", OVER_QUANTIZED)
def test_kinds_that_lie_over_it(kind: str, quantization: str) -> None:
    """All that trains gets a gradient; the base gets none."""
    settings = settings_of(worksheet_from_mapping(_table("single", kind, quantization)))
    program = build_program(MODEL, settings, torch.device("cpu"), seed=1, dropout=None, rate=1e-3)
    ids = torch.arange(64).reshape(1, 64)
    with program.autocast():
        loss = program.model(input_ids=ids, labels=ids).loss
    loss.backward()
    assert all((each.grad is not None) == each.requires_grad for each in program.model.parameters())
    program.optimizer.step()


def _measured(table: Mapping[str, Any], ranks: int, records: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, int]:
    """Bytes at each instant of rank 0, in this process."""

    def join(_: Task) -> torch.device:
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
        return torch.device("cpu")

    monkeypatch.setattr(session, "_join", join)
    # it logs an error that it survives, and pytest keeps the record: with its traceback the tensors of all frames
    monkeypatch.setattr(logging.getLogger("bitsandbytes.backends.cpu.ops"), "disabled", True)
    try:
        record = session.run_task(Task(dict(table), MODEL, "cpu", seed=1, steps=3, records=str(records)), lambda _: None)
    finally:
        dist.destroy_process_group()
    return instants_of([Stretch(*each) for each in record["memory"]])


def _workspaces(table: Mapping[str, Any]) -> int:
    """Of cuBLAS, which processors do not have."""
    return device_overheads(settings_of(worksheet_from_mapping(table)).machine.card).cublas_workspace_bytes
