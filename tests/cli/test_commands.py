"""Every command by way of ``main``: what it prints where, and its exit code."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from fullstep import __version__
from fullstep.cli import COMMANDS, main

CONFIG = {
    "model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
    "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": True, "max_position_embeddings": 131072,
}  # fmt: skip
SMALL = {"model": {"name": "small", "config": CONFIG}, "machine": {"gpu": "H100-SXM"}}
"""1.2e9 parameters: 10 B each is 12 GB of 80"""
LARGE = {**SMALL, "machine": {"gpu": "RTX3060-12GB"}, "precision": {"weights": "float32"}}
"""16 B each is 20 GB of 12"""


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FULLSTEP_DEBUG", raising=False)


def written(folder: Path, worksheet: object, name: str = "job.json") -> str:
    path = folder / name
    path.write_text(json.dumps(worksheet), encoding="utf-8")
    return str(path)


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(f"  {name}" in out for name in COMMANDS)


def test_no_command_is_a_fault_of_the_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "usage" in capsys.readouterr().out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    assert f"usage: fullstep {name}" in capsys.readouterr().out


def test_python_runs_it_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "fullstep", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"fullstep {__version__}\n"


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"fullstep {__version__}\n"


def test_an_unknown_command_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimat"]) == 2
    assert 'Did you mean "estimate"?' in capsys.readouterr().err


def test_an_unknown_flag_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", "--modle", "x"]) == 2
    captured = capsys.readouterr()
    assert "Did you mean --model?" in captured.err and not captured.out


def test_estimate_that_fits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", written(tmp_path, SMALL)]) == 0
    out = capsys.readouterr().out
    assert "It fits: one H100-SXM" in out and "Peak per GPU" in out


def test_estimate_that_does_not_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", written(tmp_path, LARGE)]) == 3
    assert "Does not fit" in capsys.readouterr().out


def test_estimate_as_json_prints_one_object_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", written(tmp_path, LARGE), "--json"]) == 3
    captured = capsys.readouterr()
    assert json.loads(captured.out)["memory"]["verdict"] == "does_not_fit"
    assert not captured.err


def test_two_worksheets_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = written(tmp_path, SMALL, "first.json"), written(tmp_path, LARGE, "second.json")
    assert main(["estimate", first, second]) == 3
    out = capsys.readouterr().out
    assert "first.json" in out and "second.json" in out and "difference" in out


def test_flags_lie_over_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, {**SMALL, "batch": {"micro_batch": 2}})
    assert main(["estimate", path, "--micro-batch", "4", "--set", "batch.sequence_tokens=512"]) == 0
    assert "512 tokens x 4 rows" in capsys.readouterr().out


def test_flags_alone_are_a_worksheet(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", "--model", "meta-llama/Llama-3.1-8B", "--method", "lora", "--gpu", "H100-SXM"]) == 0
    assert "LoRA rank 16" in capsys.readouterr().out


def test_a_worksheet_from_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(json.dumps(SMALL).encode())))
    assert main(["estimate", "-"]) == 0
    assert "It fits" in capsys.readouterr().out


def test_all_faults_of_all_worksheets_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = written(tmp_path, {**SMALL, "method": {"kind": "lra"}, "batch": {"micro_batch": 0}}, "first.json")
    second = written(tmp_path, {**SMALL, "step": {"attention": "flsh"}}, "second.json")
    assert main(["estimate", first, second]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("fullstep: 3 faults\n")
    for word in ("method.kind", "batch.micro_batch", "step.attention", "second.json"):
        assert word in captured.err
    assert not captured.out


@pytest.mark.parametrize(("arguments", "word"), [(["missing.toml"], "missing.toml"), ([], "none is given"), (["-", "-"], "twice")])
def test_no_worksheet_is_a_fault_of_the_input(arguments: list[str], word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", *arguments]) == 2
    assert word in capsys.readouterr().err


def test_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, {**SMALL, "machine": {"gpu": "H100-SXM", "gpus": 8}})
    assert main(["plan", path]) == 0
    assert "One server is enough" in capsys.readouterr().out
    assert main(["plan", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"]["answer"] == "one_server_replicated"


def test_plan_of_what_fits_nowhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep = {"fixed": ["layout.strategy", "layout.offload_optimizer", "layout.offload_parameters"]}
    assert main(["plan", written(tmp_path, {**LARGE, "plan": keep})]) == 3
    assert "Nothing fits" in capsys.readouterr().out


def test_largest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["largest", written(tmp_path, SMALL), "--vary", "micro_batch", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["option"]["memory"]["verdict"] == "fits"
    assert found["next_value"] == found["value"] + 1
    assert main(["largest", written(tmp_path, LARGE), "--vary", "micro_batch"]) == 3


def test_init_writes_a_worksheet_that_can_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init"]) == 0
    text = capsys.readouterr().out
    assert "[model]" in text and "sequence_tokens" in text
    path = tmp_path / "new.toml"
    assert main(["init", str(path)]) == 0
    assert path.read_text(encoding="utf-8") == text
    assert main(["init", str(path)]) == 2
    assert "there already" in capsys.readouterr().err
    assert main(["estimate", str(path), "--model", "meta-llama/Llama-3.1-8B", "--gpu", "H200-SXM", "--method", "lora"]) == 0


def test_a_fault_of_ours_is_a_line_to_report(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fails() -> str:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("fullstep.job.blank_worksheet", fails)
    assert main(["init"]) == 1
    message = capsys.readouterr().err
    assert "ZeroDivisionError" in message and "FULLSTEP_DEBUG=1" in message and "Traceback" not in message
    monkeypatch.setenv("FULLSTEP_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        main(["init"])


@pytest.mark.parametrize("name", ["new.yaml", "new.json", "new"])
def test_init_writes_toml_and_nothing_else(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", str(tmp_path / name)]) == 2
    assert ".toml" in capsys.readouterr().err
    assert not (tmp_path / name).exists()


def test_the_largest_model_needs_none_stated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["largest", "--vary", "model", "--gpu", "RTX4090", "--json"]) == 0
    by_flags = json.loads(capsys.readouterr().out)
    assert by_flags["option"]["worksheet"]["model"] == {"name": by_flags["value"]}
    assert main(["largest", written(tmp_path, {"machine": {"gpu": "RTX4090"}}), "--vary", "model", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["value"] == by_flags["value"]
    assert main(["largest", "--vary", "micro_batch", "--gpu", "RTX4090"]) == 2
    assert "model.name" in capsys.readouterr().err
