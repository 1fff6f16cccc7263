"""``fullstep trace`` and ``plan --trace`` by way of ``main``, on a trace made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from trace_by_hand import TRACE

from fullstep.cli import main
from fullstep.errors import Fault, InputError, LabError, UnsupportedError
from fullstep.ledger import Trace
from fullstep.quantities import GIB

LLAMA = ["--model", "meta-llama/Llama-3.1-8B", "--method", "lora", "--gpu", "H100-SXM"]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the lab was asked; it answers with the trace made by hand."""
    calls: list[dict[str, Any]] = []

    def traced(_settings: Any, _config: Any, _name: str, **options: Any) -> Trace:
        calls.append(options)
        return TRACE

    _answer_with(monkeypatch, traced)
    return calls


def _answer_with(monkeypatch: pytest.MonkeyPatch, traced: Any) -> None:
    monkeypatch.setattr("fullstep.api.traced.trace_step", traced)
    monkeypatch.setattr("fullstep.api.witness.require_libraries", lambda _: None)


def _raising(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def traced(*_: Any, **__: Any) -> Trace:
        raise error

    _answer_with(monkeypatch, traced)


def test_the_report(asked: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", *LLAMA]) == 0
    out = capsys.readouterr().out
    assert "25.0 GiB allocated (24.8-25.2)" in out and "traced" in out and "Why 25.0 GiB?" in out and "difference" in out
    assert asked == [{"full_depth": False, "snapshot": None, "progress": asked[0]["progress"], "cache": True}]


def test_options(asked: list[dict[str, Any]], tmp_path: Path) -> None:
    file = tmp_path / "new.pickle"
    assert main(["trace", *LLAMA, "--full-depth", "--no-cache", "--snapshot", str(file)]) == 0
    assert (asked[0]["full_depth"], asked[0]["snapshot"], asked[0]["cache"]) == (True, file, False)


def test_json_is_the_contracts_object_with_a_trace(asked: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", *LLAMA, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["memory"]["evidence"] == "traced" and document["host"]["evidence"] == "estimated"
    assert document["memory"]["allocated_peak_bytes"]["likely"] == document["trace"]["allocated_peak_bytes"] == 25 * GIB
    assert document["trace"]["estimated"]["peak_at"] in ("forward", "loss", "backward", "second_forward", "optimizer_step")


def test_a_model_that_the_formulas_do_not_know(
    asked: list[dict[str, Any]], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "job.json"
    path.write_text(json.dumps({"model": {"name": "state-space", "config": {"model_type": "mamba"}}, "machine": {"gpu": "H100-SXM"}}))
    assert main(["estimate", str(path)]) == 2
    assert main(["trace", str(path)]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("state-space · full fine-tuning") and "Estimate       none" in captured.out
    assert main(["trace", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["trace"]["estimated"] is None and document["host"]["verdict"] == "unknown"


def test_what_does_not_fit(asked: list[dict[str, Any]]) -> None:
    assert main(["trace", *LLAMA, "--gpu", "RTX3090"]) == 3


def test_all_faults_come_before_the_worker(asked: list[dict[str, Any]], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["trace", *LLAMA, "--micro-batch", "0", "--snapshot", str(tmp_path)]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("fullstep: 2 faults") and "is a folder" in captured.err and "micro_batch" in captured.err
    assert main(["trace", *LLAMA, "--snapshot", str(tmp_path / "missing" / "x")]) == 2
    assert not asked and not captured.out


def test_what_cannot_be_traced(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    _raising(monkeypatch, UnsupportedError(Fault("optimizer.name", "galore cannot be traced", "adamw")))
    assert main(["trace", *LLAMA]) == 2
    assert "galore" in capsys.readouterr().err


def test_a_worker_that_died(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    _raising(monkeypatch, LabError("the worker was killed by SIGKILL", remedy="Close other programs.", details=("last words",)))
    assert main(["trace", *LLAMA]) == 4
    captured = capsys.readouterr()
    assert captured.err == "fullstep: the worker was killed by SIGKILL. Close other programs.\n  | last words\n"
    assert not captured.out


def test_plan_confirms_its_best_options(asked: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *LLAMA, "--gpus", "8", "--trace"]) == 0
    out = capsys.readouterr().out
    assert "traced" in out and "difference" in out and " · estimated" in out
    assert main(["plan", *LLAMA, "--gpus", "8", "--trace", "--json"]) == 0
    options = json.loads(capsys.readouterr().out)["options"]
    assert [option["memory"]["evidence"] for option in options[:4]] == ["traced", "traced", "traced", "estimated"]
    assert "trace" in options[0] and "trace" not in options[3]


def test_plan_says_what_to_install(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def missing(_: str) -> None:
        raise InputError(Fault("fullstep trace: torch", "not installed", "torch 2.13 or newer", "pip install 'fullstep[lab]'"))

    monkeypatch.setattr("fullstep.api.witness.require_libraries", missing)
    assert main(["plan", *LLAMA, "--trace"]) == 2
    assert "pip install 'fullstep[lab]'" in capsys.readouterr().err
