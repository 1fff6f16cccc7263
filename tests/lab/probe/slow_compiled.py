"""Compiled programs step by step, with the graphs that the compiler makes and without kernels of its own, which take a minute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._dynamo.utils import counters
from torch.testing._internal.distributed.fake_pg import FakeStore

from fullstep.lab.probe.task import Task
from fullstep.lab.probe.worker import session

pytestmark = [pytest.mark.real_classes, pytest.mark.filterwarnings("ignore")]
MODEL = {
    "model_type": "llama", "vocab_size": 1000, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2,
}  # fmt: skip
_COMPILE = nn.Module.compile
Seen = tuple[dict[str, Any], list[tuple[str, int, int]]]
"""the record, and with each stage the frames and graphs that there were then"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def compile_graphs(module: nn.Module) -> None:
        _COMPILE(module, backend="aot_eager")

    def probed(layout: str, ranks: int, *, evaluates: bool = False, **sections: Any) -> Seen:
        def join(_: Task) -> torch.device:
            dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
            return torch.device("cpu")

        def say(stage: str) -> None:
            stages.append((stage, counters["frames"]["ok"], counters["stats"]["unique_graphs"]))

        stages: list[tuple[str, int, int]] = []
        monkeypatch.setattr(session, "_join", join)
        table = {
            "model": {"config": MODEL}, "batch": {"sequence_tokens": 32, "micro_batch": 2, "accumulation": 2}, "machine": {"gpus": ranks},
            "layout": {"strategy": layout}, "step": {"compile": True}, **sections,
        }  # fmt: skip
        task = Task(table, MODEL, "cpu", seed=1, steps=4, records=str(tmp_path), evaluates=evaluates)
        torch.compiler.reset()
        counters.clear()
        try:
            return session.run_task(task, say), stages
        finally:
            dist.destroy_process_group()
            torch.compiler.reset()

    monkeypatch.setattr(nn.Module, "compile", compile_graphs)
    return probed


def test_a_whole_model_is_one_graph_and_compiled_once(run: Any) -> None:
    record, stages = run("single", 1, evaluates=True)
    compiled = {stage: graphs for stage, _, graphs in stages}
    assert compiled["compiling the model, which takes a while"] == 0
    assert {compiled[f"step {number} of 4, counting memory"] for number in (1, 2)} == {1}
    assert {compiled[f"step {number} of 4"] for number in (3, 4)} == {2}  # evaluations have a graph of their own
    phases = {(stretch[0], stretch[2]) for stretch in record["memory"]}
    assert (0, "compile") in phases and "loss" not in {phase for _, phase in phases}
    compiling = next(stretch for stretch in record["memory"] if stretch[2] == "compile")
    assert compiling[4] == 2 * record["parameters"] + 2 * 8 * 4  # nothing is left but weights, and rotary frequencies that are kept twice
    assert len(record["steps"]) == 2 and phases >= {(step, phase) for step in (1, 2) for phase in ("forward", "backward", "optimizer_step")}


def test_blocks_of_shards_are_one_graph_and_the_loss_is_seen(run: Any) -> None:
    record, stages = run("fsdp", 4)
    assert {graphs for stage, _, graphs in stages if stage.startswith("step")} == {1}
    assert len({frames for stage, frames, _ in stages if stage.startswith("step")}) == 1
    assert {stretch[2] for stretch in record["memory"] if stretch[0] == 2} >= {"forward", "loss", "backward"}
