"""Launch files of a probe: their scripts run with stand-ins, and hand the worksheet on as it is."""

from __future__ import annotations

import os
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from fullstep.formats import TOOLS, Launch, launch_from
from fullstep.job import complete, worksheet_from_mapping

STAND_INS = {
    "fullstep": 'echo "fullstep $*" >> "$LOG"; cat > "$LOG.toml"',
    "srun": 'echo "srun $*" >> "$LOG"; while [ "${1#--}" != "$1" ]; do shift; done; exec "$@"',
    "pip": 'echo "pip $*" >> "$LOG"',
}
PLACES = {"slurm": {"SLURM_CPUS_PER_TASK": "8"}, "torchrun": {"NODE_RANK": "1", "MASTER_ADDR": "10.0.0.1"}, "skypilot": {}, "dstack": {}}
SHEET: dict[str, Any] = {
    "model": {"name": "meta-llama/Llama-3.1-8B"}, "method": {"kind": "lora"},
    "machine": {"gpu": "H100-SXM", "gpus": 8, "nodes": 2}, "batch": {"sequence_tokens": 4096},
}  # fmt: skip


def made_of(sheet: dict[str, Any], **chosen: Any) -> Launch:
    return launch_from(complete(worksheet_from_mapping(sheet, "job.toml")), **{"probe": "", **chosen})


def script_of(tool: str, made: Launch) -> str:
    *_, last = TOOLS[tool](made)
    if tool == "skypilot":
        return str(yaml.safe_load(last.text)["run"])
    return str(yaml.safe_load(last.text)["commands"][0]) if tool == "dstack" else last.text


def run(tool: str, made: Launch, folder: Path) -> tuple[list[str], dict[str, Any]]:
    """What was started, and the worksheet that the probe was given."""
    for name, body in STAND_INS.items():
        program = folder / name
        program.write_text(f"#!/usr/bin/env bash\n{body}\n", encoding="utf-8")
        program.chmod(0o755)
    script = script_of(tool, made).replace("=/checkpoints/", f"={folder}/checkpoints/").replace("$SLURM_SUBMIT_DIR", str(folder))
    place = {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "LOG": str(folder / "log"), **PLACES[tool]}
    subprocess.run(["bash", "-c", script], env=place, cwd=folder, check=True, timeout=60)
    return (folder / "log").read_text().splitlines(), tomllib.loads((folder / "log.toml").read_text())


@pytest.mark.parametrize(
    ("tool", "before", "more"),
    [
        ("slurm", ["srun --nodes=2 --ntasks-per-node=1 --kill-on-bad-exit=1"], ""),
        ("torchrun", [], "--nodes 2 --node-rank 1 --rendezvous 10.0.0.1:29500 "),
        ("skypilot", [], ""),
        ("dstack", ["pip install .[lab]"], ""),
    ],
)
def test_every_node_starts_the_probe(tool: str, before: list[str], more: str, tmp_path: Path) -> None:
    started, sheet = run(tool, made_of(SHEET, probe="--steps 20 --evaluate"), tmp_path)
    where = tmp_path / "checkpoints" / "llama-3-1-8b-lora-probe" / "probe-records"
    probe = f"fullstep probe - --evidence {where} {more}--steps 20 --evaluate"
    expected = [f"{before[0]} {probe}"] if tool == "slurm" else before
    assert started == [*expected, probe]
    assert {key: value for key, value in sheet.items() if key != "schema"} == SHEET
    assert where.is_dir()


@pytest.mark.parametrize("tool", list(PLACES))
def test_a_hostile_worksheet_is_handed_on_and_runs_nothing(tool: str, tmp_path: Path) -> None:
    config = {
        "model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 2, "num_attention_heads": 32,
        "vocab_size": 1000, "note": "'; touch gone; echo '$(touch gone)`touch gone`\n#SBATCH --exclusive\nEOF\n  indented \\ \"",
    }  # fmt: skip
    made = made_of({**SHEET, "model": {"name": "a/b", "config": config}})
    _, sheet = run(tool, made, tmp_path)
    assert sheet["model"]["config"] == config
    assert not (tmp_path / "gone").exists()


def test_on_one_node_nothing_has_to_meet(tmp_path: Path) -> None:
    started, _ = run("torchrun", made_of({**SHEET, "machine": {"gpu": "H100-SXM", "gpus": 8}}), tmp_path)
    assert started[0].endswith("probe-records") and "--nodes" not in started[0]


@pytest.mark.parametrize("model", ["a/" + "9" * 60, "a/" + "b" * 60])
def test_names_are_no_longer_than_tools_take(model: str) -> None:
    """dstack takes 41 letters, with what is named after the run."""
    config = {"model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 2, "num_attention_heads": 32,
              "vocab_size": 1000}  # fmt: skip
    made = made_of({**SHEET, "model": {"name": model, "config": config}})
    assert made.name.endswith("-lora-probe") and len(f"{made.name}-fleet") <= 41
