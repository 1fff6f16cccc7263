"""An answer from a trace made by hand: which witness says what, and what is found before any worker starts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from trace_by_hand import TRACE

from fullstep.api import estimate, plan, trace, worksheet_from_mapping
from fullstep.api.traced import snapshot_fault
from fullstep.errors import Fault, InputError, LabError, UnsupportedError
from fullstep.ledger import Trace
from fullstep.quantities import GIB

LLAMA: dict[str, Any] = {"model": {"name": "meta-llama/Llama-3.1-8B"}, "method": {"kind": "lora"}, "machine": {"gpu": "H100-SXM"}}
MAMBA: dict[str, Any] = {"model": {"config": {"model_type": "mamba"}}, "machine": {"gpu": "H100-SXM"}}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the lab was asked; it answers with the trace made by hand."""
    calls: list[dict[str, Any]] = []

    def traced(settings: Any, config: Any, name: str, **options: Any) -> Trace:
        calls.append({"settings": settings, "config": config, "name": name, **options})
        return TRACE

    monkeypatch.setattr("fullstep.api.traced.trace_step", traced)
    monkeypatch.setattr("fullstep.api.witness.require_libraries", lambda _: None)
    return calls


def test_a_trace_outranks_the_estimate_which_stands_beside_it(asked: list[dict[str, Any]]) -> None:
    sheet = worksheet_from_mapping(LLAMA)
    answer, formulas = trace(sheet), estimate(sheet)
    assert answer.memory.evidence == "traced" and answer.memory.allocated_peak_bytes.likely == 25 * GIB
    assert answer.trace is TRACE and answer.estimated is not None
    assert answer.estimated.allocated == formulas.memory.allocated_peak_bytes and answer.estimated.instants == formulas.memory.instants
    assert answer.memory.other_peaks == formulas.memory.other_peaks and answer.host == formulas.host
    assert formulas.trace is None and formulas.estimated is None
    assert asked[0]["name"] == "meta-llama/Llama-3.1-8B" and asked[0]["config"]["num_hidden_layers"] == 32


def test_a_pilot_outranks_both(asked: list[dict[str, Any]]) -> None:
    answer = trace(worksheet_from_mapping({**LLAMA, "measured": {"allocated_peak_gib": 26}}))
    assert answer.memory.evidence == "measured" and answer.memory.allocated_peak_bytes.likely == 26 * GIB
    row = answer.measured["allocated_peak_bytes"]
    assert row.measured == 26 * GIB and row.traced.likely == 25 * GIB and row.estimated.likely != row.traced.likely
    assert answer.memory.instants == TRACE.instants


def test_a_model_that_the_formulas_do_not_know(asked: list[dict[str, Any]]) -> None:
    sheet = worksheet_from_mapping(MAMBA)
    with pytest.raises(UnsupportedError):
        estimate(sheet)
    answer = trace(sheet)
    assert answer.estimated is None and answer.memory.evidence == "traced"
    why = {assumption.key: assumption.why for assumption in answer.assumptions}
    assert "mamba" in why["trace.estimated"] and why["memory.other_peaks"] and why["host"]
    assert answer.host.evidence == "traced" and answer.host.verdict == "unknown"


def test_of_a_host_that_is_not_known_what_is_offloaded_can_be_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """9 GiB a rank on 8 GPUs are 72 of 64."""
    monkeypatch.setattr("fullstep.api.traced.trace_step", lambda *_, **__: TRACE._replace(host_bytes=9 * GIB))
    machine = {"gpu": "H100-SXM", "gpus": 8}
    assert trace(worksheet_from_mapping({**MAMBA, "machine": {**machine, "host_memory_gib": 64}})).host.verdict == "does_not_fit"
    assert trace(worksheet_from_mapping({**MAMBA, "machine": {**machine, "host_memory_gib": 640}})).host.verdict == "unknown"


def test_a_replay_that_runs_out_is_tight_at_best(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fullstep.api.traced.trace_step", lambda *_, **__: TRACE._replace(out_of_memory="2.0 GiB in backward"))
    answer = trace(worksheet_from_mapping(LLAMA))
    assert answer.memory.verdict == "tight" and "2.0 GiB in backward" in answer.memory.reason
    assert "F120" in [caution.code for caution in answer.warnings]


def test_options_reach_the_lab(asked: list[dict[str, Any]], tmp_path: Path) -> None:
    trace(worksheet_from_mapping(LLAMA), full_depth=True, snapshot=tmp_path / "new.pickle", cache=False, progress=print)
    call = asked[0]
    assert (call["full_depth"], call["snapshot"], call["cache"], call["progress"]) == (True, tmp_path / "new.pickle", False, print)


def test_faults_of_the_worksheet_come_before_the_lab(asked: list[dict[str, Any]]) -> None:
    with pytest.raises(InputError, match="machine"):
        trace(worksheet_from_mapping({**LLAMA, "machine": {"gpu": "A100"}}))
    assert not asked


def test_where_a_snapshot_can_be_written(tmp_path: Path) -> None:
    there = tmp_path / "there.pickle"
    there.write_text("old")
    assert snapshot_fault(there) is None and snapshot_fault(tmp_path / "new.pickle") is None
    for path, found in (
        (tmp_path, "is a folder"),
        (tmp_path / "missing" / "new.pickle", "is not there"),
        (there / "new.pickle", "is no folder"),
        (tmp_path / ("x" * 5000), "cannot be written"),
        (tmp_path / "nothing\0here", "cannot be written"),
    ):
        fault = snapshot_fault(path)
        assert fault is not None and found in fault.found, path


def test_no_permission_to_write_a_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: list[dict[str, Any]]) -> None:
    """The superuser may write everywhere, so that the system's answer stands in."""
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(InputError, match="no permission"):
        trace(worksheet_from_mapping(LLAMA), snapshot=tmp_path / "new.pickle")
    assert not asked


def test_plan_traces_the_options_that_come_first(asked: list[dict[str, Any]]) -> None:
    """All of them come out at the same 25 GiB, which fits."""
    sheet = worksheet_from_mapping({**LLAMA, "machine": {"gpu": "H100-SXM", "gpus": 8}})
    said: list[str] = []
    found = plan(sheet, trace=True, progress=said.append)
    assert [trial.answer.memory.evidence for trial in found.options[:4]] == ["traced"] * 3 + ["estimated"]
    assert len(asked) == 3 and found.verdict.answer.startswith("one_server")
    assert not [trial for trial in plan(sheet).options if trial.answer.trace is not None]


@pytest.mark.parametrize(
    "error", [UnsupportedError(Fault("optimizer.name", "galore cannot be traced", "adamw")), LabError("galore cannot be traced: it died")]
)
def test_an_option_that_cannot_be_traced_stays_estimated(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: Any, **__: Any) -> Trace:
        raise error

    monkeypatch.setattr("fullstep.api.traced.trace_step", refuses)
    monkeypatch.setattr("fullstep.api.witness.require_libraries", lambda _: None)
    sheet = worksheet_from_mapping(LLAMA)
    found = plan(sheet, trace=True)
    first = found.options[0].answer
    assert first.memory == plan(sheet).options[0].answer.memory
    assert [text for code, text in first.warnings if code == "F200" and "galore cannot be traced" in text]


def test_without_the_libraries_plan_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> None:
        raise InputError(Fault("fullstep trace: torch", "not installed", "torch 2.13 or newer", "pip install 'fullstep[lab]'"))

    monkeypatch.setattr("fullstep.api.witness.require_libraries", missing)
    with pytest.raises(InputError, match="pip install"):
        plan(worksheet_from_mapping(LLAMA), trace=True)
    assert plan(worksheet_from_mapping(LLAMA)).options


def test_an_interrupted_plan_ends_the_traces_that_are_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """One trace raises at once; the others hear of it at their next sign of life."""
    heard = threading.Event()
    first = threading.Lock()

    def traced(*_: Any, progress: Callable[[str], None], **__: Any) -> Trace:
        if first.acquire(blocking=False):
            raise KeyboardInterrupt
        try:
            for _second in range(600):
                progress("forward")
                heard.wait(0.05)
        except Exception:
            heard.set()
            raise
        return TRACE

    monkeypatch.setattr("fullstep.api.traced.trace_step", traced)
    monkeypatch.setattr("fullstep.api.witness.require_libraries", lambda _: None)
    with pytest.raises(KeyboardInterrupt):
        plan(worksheet_from_mapping({**LLAMA, "machine": {"gpu": "H100-SXM", "gpus": 8}}), trace=True)
    assert heard.is_set()
