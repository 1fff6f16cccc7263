"""FSDP2 on a process group that moves nothing: the traced program, without the threads of gloo."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from fullstep.api import trace, worksheet_from_mapping
from fullstep.hardware import device_overheads
from fullstep.job import settings_of
from fullstep.lab.probe.task import Task
from fullstep.lab.probe.worker import session
from fullstep.lab.program.real import Program
from fullstep.ledger.probe import Stretch, instants_of
from fullstep.models import model_config

pytestmark = [pytest.mark.real_classes, pytest.mark.filterwarnings("ignore")]
MODEL = {  # large enough that rounding to 512 bytes is small beside it
    "model_type": "llama", "vocab_size": 2000, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2,
}  # fmt: skip


def test_sharded_steps_are_the_traced_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = {
        "model": {"config": MODEL}, "batch": {"sequence_tokens": 128, "micro_batch": 2, "accumulation": 2},
        "machine": {"gpus": 4}, "layout": {"strategy": "fsdp"},
    }  # fmt: skip
    sheet = worksheet_from_mapping(table)

    def join(_: Task) -> torch.device:
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
        return torch.device("cpu")

    monkeypatch.setattr(session, "_join", join)
    config, _ = model_config(sheet.section("model"))
    try:
        record = session.run_task(Task(table, config, "cpu", seed=1, steps=3, records=str(tmp_path)), lambda _: None)
    finally:
        dist.destroy_process_group()
    measured = instants_of([Stretch(*each) for each in record["memory"]])
    workspaces = device_overheads(settings_of(sheet).machine.card).cublas_workspace_bytes
    for instant in trace(sheet).memory.instants:
        assert instant.allocated_bytes - workspaces == pytest.approx(measured[instant.at], rel=0.02), instant.at
    assert record["environment"]["released_unseen_bytes"] < 0.01 * measured["backward"]


def test_memory_that_runs_out_in_a_timed_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is no longer counted: what was counted before is told, and where it ran out."""

    def products(_: Program) -> NoReturn:  # of timed steps alone
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes. Error code 12")

    monkeypatch.setattr(Program, "products", products)
    monkeypatch.setattr(session, "_join", _alone)
    table = {"model": {"config": MODEL}, "batch": {"sequence_tokens": 8, "micro_batch": 1}}
    try:
        record = session.run_task(Task(table, MODEL, "cpu", seed=1, steps=3, records=str(tmp_path)), lambda _: None)
    finally:
        dist.destroy_process_group()
    ran_out = record["out_of_memory"]
    assert (ran_out["step"], ran_out["phase"], ran_out["asked_bytes"]) == (3, "inputs", 4096)
    assert {Stretch(*each).step for each in record["memory"]} == {0, 1, 2}


def _alone(_: Task) -> torch.device:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=1)
    return torch.device("cpu")
