"""The object ``trace`` of an answer: every name of docs/answer.md, whole bytes, and what JSON can hold."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from trace_by_hand import TRACE

from fullstep.ledger import Answer, MemoryEstimate, OtherPeaks
from fullstep.quantities import GIB, Bounds
from fullstep.report.json import answer_as_dict, dump
from fullstep.report.trace_json import flops_by_phase, trace_as_dict

BOUNDS = Bounds(19 * GIB, 20 * GIB, 22 * GIB)
ESTIMATED = MemoryEstimate(1, 1, TRACE.instants, "loss", BOUNDS, BOUNDS, BOUNDS, BOUNDS, OtherPeaks(), 0, "load")


def test_every_name_is_in_the_docs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "answer.md").read_text("utf-8")
    document = trace_as_dict(TRACE, ESTIMATED)
    names = [*document, *document["timeline"][0], *document["largest_tensors"][0], *document["modules"][0]]
    assert [name for name in names if f"`{name}`" not in page and f"`{name}[]`" not in page] == []


def test_an_answer_with_a_trace_carries_it(answer: Answer) -> None:
    traced = replace(answer, memory=replace(answer.memory, evidence="traced"), trace=TRACE, estimated=ESTIMATED)
    document = json.loads(dump(answer_as_dict(traced)))
    assert document["memory"]["evidence"] == "traced" and document["host"]["evidence"] == "estimated"
    assert document["trace"] == json.loads(json.dumps(trace_as_dict(TRACE, ESTIMATED)))
    assert "trace" not in answer_as_dict(answer)


def test_figures(answer: Answer) -> None:
    document = trace_as_dict(TRACE, ESTIMATED)
    assert document["estimated"]["allocated_peak_bytes"] == {"low": 19 * GIB, "likely": 20 * GIB, "high": 22 * GIB}
    assert [instant["at"] for instant in document["estimated"]["instants"]] == ["forward", "second_forward", "optimizer_step"]
    assert max(moment["allocated_peak_bytes"] for moment in document["timeline"]) == document["allocated_peak_bytes"] == 25 * GIB
    assert document["largest_tensors"][2]["shape"] == [1, 4096, 128256]
    assert document["out_of_memory"] is None and document["versions"] == {"torch": "2.13.0", "transformers": "5.23.0"}
    assert sum(flops_by_phase(TRACE).values()) == TRACE.flops_per_step
    assert trace_as_dict(TRACE, None)["estimated"] is None


def test_flops_by_phase_count_the_micro_batches_that_were_not_traced() -> None:
    """Eight micro-batches of which two were traced: four times 128, 8 and 256 TFLOP, and 5 of the optimizer once."""
    optimizer = TRACE.timeline[-2]._replace(flops=5 * 10**12)
    eight = TRACE._replace(timeline=(*TRACE.timeline[:-2], optimizer), flops_per_step=(4 * 392 + 5) * 10**12)
    tera = {phase: flops // 10**12 for phase, flops in flops_by_phase(eight).items()}
    assert tera == {"forward": 4 * 128, "loss": 4 * 8, "backward": 4 * 256, "optimizer_step": 5}
