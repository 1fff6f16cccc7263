"""The answer as JSON, against the contract's table of names and units."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from fullstep.api import estimate
from fullstep.calibration import Comparison
from fullstep.errors import Fault, InputError
from fullstep.evidence import Assumption
from fullstep.job import worksheet_from_mapping
from fullstep.ledger import HOLDINGS, Answer, Holdings, Instant
from fullstep.quantities import GIB, Bounds
from fullstep.report.json import answer_as_dict, answer_line, dump, error_as_dict, instant_as_dict


def test_every_name_of_the_contract(answer: Answer) -> None:
    document = answer_as_dict(answer)
    assert set(document) == {
        "schema", "fullstep", "model", "memory", "host", "step", "traffic", "checkpoint", "run", "assumptions", "warnings",
    }  # fmt: skip
    assert document["schema"] == 1
    assert document["model"] == {"parameters": 8030261248, "trainable_parameters": 8030261248}
    memory = document["memory"]
    counters = {"allocated_peak_bytes", "reserved_peak_bytes", "device_peak_bytes", "needed_bytes"}
    assert counters | {"evidence", "peak_at", "instants", "other_peaks", "usable_bytes", "verdict"} <= set(memory)
    assert memory["usable_bytes"] == 79 * GIB and memory["verdict"] == "fits"
    assert memory["allocated_peak_bytes"] == {"low": round(24.5 * GIB), "likely": 25 * GIB, "high": 26 * GIB}
    assert memory["other_peaks"] == {"load": 30 * GIB, "evaluation": None, "save": None}
    assert document["host"] == {"evidence": "estimated", "memory_peak_bytes": round(30.2 * GIB), "at": "load", "verdict": "fits"}
    assert document["warnings"] == [{"code": "F011", "text": "rows are longer than the model's positions"}]


def test_the_holdings_of_an_instant_add_up(answer: Answer) -> None:
    for instant in answer_as_dict(answer)["memory"]["instants"]:
        assert tuple(instant["holdings"]) == HOLDINGS
        assert sum(instant["holdings"].values()) == instant["allocated_bytes"]
        assert all(type(size) is int for size in instant["holdings"].values())


def test_what_is_not_answered_is_null_and_says_why(answer: Answer) -> None:
    document = answer_as_dict(answer)
    reasons = {entry["key"]: entry["why"] for entry in document["assumptions"]}
    for part in ("step", "traffic", "checkpoint", "run"):
        assert document[part] is None
        assert reasons[part]


def test_bytes_that_round_apart_still_add_up() -> None:
    """Three holdings of a third of a byte more each: the whole rounds as the parts do."""
    record = instant_as_dict(Instant("forward", Holdings(1.4, 1.4, 1.4)))
    assert record["allocated_bytes"] == sum(record["holdings"].values())


def test_the_line_says_the_same_as_the_object(answer: Answer) -> None:
    line = answer_line(answer)
    assert "\n" not in line
    assert json.loads(line) == json.loads(dump(answer_as_dict(answer)))


def test_values_that_cannot_be_remembered(answer: Answer) -> None:
    listed = replace(answer, assumptions=(Assumption("method.targets", ["q_proj", "v_proj"], "peft"),))
    assert json.loads(answer_line(listed)) == answer_as_dict(listed)
    none = replace(answer, assumptions=())
    assert json.loads(answer_line(none)) == answer_as_dict(none)


def test_measured_figures_stand_beside_the_estimate(answer: Answer) -> None:
    pilot = replace(answer, measured={"allocated_peak_bytes": Comparison(26 * GIB, Bounds(1, 2, 3)), "step_seconds": Comparison(2.5, None)})
    assert answer_as_dict(pilot)["measured"] == {
        "allocated_peak_bytes": {"measured": 26 * GIB, "estimated": {"low": 1, "likely": 2, "high": 3}},
        "step_seconds": {"measured": 2.5, "estimated": None},
    }


def test_a_bad_worksheet_is_an_object_with_all_faults() -> None:
    error = InputError(Fault("a", "b", "c", "d"), Fault("e", "f", ""))
    document = error_as_dict(error)
    assert document["error"] == "a: b; allowed: c. d\ne: f"
    assert [fault["where"] for fault in document["faults"]] == ["a", "e"]


def test_a_fault_of_ours_is_called_so() -> None:
    assert "fault of fullstep itself" in error_as_dict(ZeroDivisionError("division by zero"))["error"]


def test_the_likely_peak_is_its_instant_to_the_byte(answer: Answer) -> None:
    """Eight holdings of a third of a byte more than whole: each is rounded down, their sum would be rounded to 3 more."""
    holdings = Holdings(*(GIB + 1 / 3 for _ in range(8)))
    memory = replace(answer.memory, allocated_peak_bytes=Bounds.exact(sum(holdings)), peak_at="loss", instants=(Instant("loss", holdings),))
    told = answer_as_dict(replace(answer, memory=memory))["memory"]
    assert told["allocated_peak_bytes"] == {"low": 8 * GIB, "likely": 8 * GIB, "high": 8 * GIB + 3}
    assert told["instants"][0]["allocated_bytes"] == 8 * GIB
    measured = answer_as_dict(replace(answer, memory=replace(memory, evidence="measured")))["memory"]
    assert measured["allocated_peak_bytes"]["likely"] == 8 * GIB + 3


@pytest.mark.parametrize("strategy", ["hsdp", "fsdp_grad_op", "layer_split", "zero3"])
def test_real_answers_agree_to_the_byte(strategy: str) -> None:
    sections = {"model": {"name": "meta-llama/Llama-3.1-8B"}, "machine": {"gpus": 7}, "layout": {"strategy": strategy}}
    for tokens in (1000, 1001, 3333):
        told = answer_as_dict(estimate(worksheet_from_mapping({**sections, "batch": {"sequence_tokens": tokens}})))["memory"]
        assert told["allocated_peak_bytes"]["likely"] == max(instant["allocated_bytes"] for instant in told["instants"])
