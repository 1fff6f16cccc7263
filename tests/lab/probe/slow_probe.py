"""Probes of more ranks, and of shards over gloo: `make test-slow`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from socket import socket
from typing import Any

import pytest
from transformers import AutoConfig, AutoModelForCausalLM

from fullstep.api.probed import Probed, probe
from fullstep.formats.probe_record import read_all
from fullstep.job import worksheet_from_mapping

pytestmark = [pytest.mark.real_classes, pytest.mark.filterwarnings("ignore")]
MODEL: dict[str, Any] = {
    "model_type": "llama", "vocab_size": 1000, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2,
}  # fmt: skip
STEP = ("forward", "loss", "backward", "second_forward", "optimizer_step")


def _probed(layout: str, ranks: int, **sections: Any) -> Probed:
    batch = {"sequence_tokens": 128, "micro_batch": 2, "accumulation": 2}
    sheet = {"model": {"config": MODEL}, "batch": batch, "layout": {"strategy": layout}, **sections}
    found = probe(worksheet_from_mapping(sheet), cpu=ranks, steps=3)
    assert found is not None  # of one node
    return found


@pytest.mark.parametrize(
    ("layout", "ranks", "sections"),
    [
        ("ddp", 2, {}),
        ("ddp", 4, {}),
        ("ddp", 2, {"method": {"kind": "lora"}}),
        ("single", 1, {"precision": {"weights": "float32", "compute": "bfloat16"}}),
        ("single", 1, {"step": {"activation_checkpointing": "full"}}),
    ],
    ids=["ddp of 2", "ddp of 4", "lora", "autocast", "recomputed"],
)
def test_every_instant_is_the_traced_one(layout: str, ranks: int, sections: dict[str, Any]) -> None:
    found = _probed(layout, ranks, **sections)
    assert found.probe.outcome == "completed" and len(found.probe.ranks) == ranks
    lines = {line.what: line for line in found.lines}
    for at in STEP:
        assert lines[at].traced == pytest.approx(lines[at].measured, rel=0.02), at


def test_real_weights_count_whichever_thread_has_read_them(tmp_path: Path) -> None:
    AutoModelForCausalLM.from_config(AutoConfig.for_model(**MODEL)).save_pretrained(tmp_path / "weights")
    sheet = {"model": {"config": MODEL}, "batch": {"sequence_tokens": 128, "micro_batch": 2, "accumulation": 2}}
    found = probe(worksheet_from_mapping(sheet), cpu=1, steps=3, weights=str(tmp_path / "weights"))
    assert found is not None
    lines = {line.what: line for line in found.lines}
    for at in STEP:
        assert lines[at].traced == pytest.approx(lines[at].measured, rel=0.02), at


@pytest.mark.parametrize("ranks", [2, 4])
def test_sharded_steps_are_the_traced_ones_but_for_a_copy_in_backward(ranks: int) -> None:
    """gloo reduces a copy of what is to be scattered: it is there at the peak or already gone. The largest unit is the root, whose
    gradients are flat in bfloat16. On a process group that moves nothing there is none: test_session.py."""
    root = 2 * (2 * MODEL["vocab_size"] * MODEL["hidden_size"] + MODEL["hidden_size"])
    lines = {line.what: line for line in _probed("fsdp", ranks).lines}
    near = 0.02 * lines["backward"].measured
    for at in STEP:
        copy = root if at == "backward" else 0
        traced = lines[at].traced
        assert traced is not None and traced - near < lines[at].measured < traced + copy + near, at


def test_two_nodes_of_one_rank_each(tmp_path: Path) -> None:
    """Two commands on this machine that find each other. The first one tells of both ranks, in one checkpoint and one record."""
    with socket() as free:
        free.bind(("127.0.0.1", 0))
        rendezvous = f"127.0.0.1:{free.getsockname()[1]}"
    (tmp_path / "job.json").write_text(json.dumps({"model": {"config": MODEL}, "layout": {"strategy": "ddp"}}))
    words = [
        str(Path(sys.executable).with_name("fullstep")), "probe", str(tmp_path / "job.json"), "--cpu", "1", "--no-trace",
        "--sequence-tokens", "64", "--evidence", str(tmp_path / "records"), "--save-to", str(tmp_path / "saved"),
        "--nodes", "2", "--rendezvous", rendezvous,
    ]  # fmt: skip
    nodes = [subprocess.Popen([*words, "--node-rank", str(rank)], stdout=subprocess.PIPE, stderr=subprocess.PIPE) for rank in range(2)]
    (first, _), (second, said) = (node.communicate() for node in nodes)
    assert [node.returncode for node in nodes] == [0, 0], said
    assert b"2 ranks" in first and second == b"" and b"node 0 tells of all" in said
    (stored,) = read_all(str(tmp_path / "records"))
    assert stored.probe is not None
    assert (stored.probe.world_size, [rank.rank for rank in stored.probe.ranks]) == (2, [0, 1])
    assert stored.probe.environment["nodes"] == 2
    assert len(list((tmp_path / "saved").iterdir())) == 1


@pytest.mark.parametrize("layout", ["single", "fsdp"])
def test_compiled_steps_hold_no_more(layout: str) -> None:
    """The compiler's own kernels on processors. What it fuses is not kept."""
    ranks = 1 if layout == "single" else 2
    compiled, plain = (_probed(layout, ranks, step={"compile": compile}) for compile in (True, False))
    assert compiled.probe.outcome == plain.probe.outcome == "completed"
    assert "compile" in {stretch.phase for stretch in compiled.probe.ranks[0].memory}
    held = [{line.what: line.measured for line in each.lines} for each in (compiled, plain)]
    for at in ("backward", "second_forward", "optimizer_step"):
        assert held[0][at] < 1.02 * held[1][at], at
