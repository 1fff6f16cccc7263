"""Drills in every mode, method and layout, and a rank that hangs: collected only when named. Minutes each."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

FULLSTEP = Path(sys.executable).with_name("fullstep")
SMALL = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 256,
}  # fmt: skip
EXPERTS = {**SMALL, "model_type": "mixtral", "num_local_experts": 4}
GPT2 = {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 256}
BATCH = {"sequence_tokens": 32, "micro_batch": 2, "accumulation": 2}


def command(folder: Path, sheet: dict[str, Any], *options: str) -> list[str]:
    base = {"model": {"config": SMALL}, "precision": {"weights": "float32", "compute": "float32"}, "batch": BATCH}
    (folder / "job.json").write_text(json.dumps({**base, **sheet}))
    return [str(FULLSTEP), "drill", str(folder / "job.json"), "--to", str(folder / "to"), "--json", *options]


def drilled(folder: Path, sheet: dict[str, Any], *options: str) -> dict[str, Any]:
    done = subprocess.run(command(folder, sheet, *options), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert not (folder / "to").exists()
    return found


_BLUNT = "bit for bit; elsewhere by the state after loading alone, since losses cannot tell a fault there"
CASES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "1 to 2": ({}, ("--cpu", "1", "--ranks-after", "2")),
    "2 to 4": ({}, ("--cpu", "2", "--ranks-after", "4")),
    "4 to 2": ({}, ("--cpu", "4", "--ranks-after", "2", "--mode", "thread")),
    "ddp to fsdp": ({"layout": {"strategy": "ddp"}}, ("--cpu", "2", "--after", "layout.strategy=fsdp", "--export")),
    "hsdp": ({"layout": {"strategy": "hsdp", "shards": 2}}, ("--cpu", "4", "--mode", "thread", "--export")),
    "process": ({}, ("--cpu", "2", "--mode", "process", "--ranks-after", "1")),
    "bfloat16": ({"precision": {"weights": "bfloat16"}}, ("--cpu", "2", "--ranks-after", "1")),
    "mixed": ({"precision": {"weights": "float32", "compute": "bfloat16"}}, ("--cpu", "2", "--ranks-after", "1")),
    "lora": ({"method": {"kind": "lora"}}, ("--cpu", "2", "--ranks-after", "1", "--export")),
    "recomputed": ({"step": {"activation_checkpointing": "full"}}, ("--cpu", "2",)),
    "momentum": ({"optimizer": {"name": "sgd_momentum"}}, ("--cpu", "2",)),
    "sgd": ({"optimizer": {"name": "sgd"}}, ("--cpu", "2",)),
    "experts": ({"model": {"config": EXPERTS}}, ("--cpu", "2", "--ranks-after", "1", "--export")),
    "gpt2": ({"model": {"config": GPT2}}, ("--cpu", "2", "--export")),
}


@pytest.mark.parametrize("case", CASES)
def test_it_passes(case: str, tmp_path: Path) -> None:
    sheet, options = CASES[case]
    found = drilled(tmp_path, sheet, *options)
    assert found["verdict"] == "passed"
    blunt = case in ("bfloat16", "lora")  # losses cannot tell the mildest fault from rounding there; states are compared bit for bit
    assert found["reason"] == (_BLUNT if blunt else None)
    expected = [True, True, None if case == "sgd" else True, True]
    assert [each["caught"] for each in found["controls"]] == expected
    if found["elsewhere"] is not None:
        assert found["elsewhere"]["loss_difference"] <= found["elsewhere"]["gate"]
        if not blunt:
            assert found["elsewhere"]["gate"] < found["elsewhere"]["mildest_fault"]
    if found["export"] is not None:
        assert found["export"]["tensors"] > 0


def test_a_url_of_fsspec_is_a_place_as_well(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    words = command(tmp_path, {}, "--cpu", "2")
    words[words.index("--to") + 1] = f"file://{place}"
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["verdict"] == "passed"
    assert list(place.iterdir()) == []


def test_a_rank_that_hangs_ends_the_drill_with_4(tmp_path: Path) -> None:
    words = [*command(tmp_path, {"batch": {**BATCH, "sequence_tokens": 128}}, "--cpu", "2", "--silent-seconds", "20")]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as process:
        until, stopped = time.monotonic() + 60, 0
        while not stopped and time.monotonic() < until:
            time.sleep(0.5)
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                found = path.read_bytes().split(b"\0") if path.exists() else []
                if b"fullstep.lab.drill.worker" in found and found[-2].startswith(bytes(tmp_path)) and b"--max-restarts=0" not in found:
                    stopped = int(path.parent.name)
        os.kill(stopped, signal.SIGSTOP)
        _, complaint = process.communicate(timeout=120)
    assert process.returncode == 4
    assert "said nothing for 20 s and was stopped" in complaint
    until = time.monotonic() + 10
    while Path(f"/proc/{stopped}").exists() and time.monotonic() < until:  # dead, until somebody has taken note
        time.sleep(0.1)
    assert not Path(f"/proc/{stopped}").exists()
