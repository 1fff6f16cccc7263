"""A search on paper and as JSON: the contract's names, and a line for everything that matters."""

from __future__ import annotations

from typing import Any

import pytest

from fullstep.job import Job, Worksheet, complete, edit, worksheet_from_mapping
from fullstep.ledger import Answer, Holdings, HostMemory, Instant, Memory, OtherPeaks
from fullstep.plan.largest import largest
from fullstep.plan.rejections import Rejection
from fullstep.plan.search import Plan, plan
from fullstep.plan.verdict import judge
from fullstep.quantities import GIB, Bounds
from fullstep.report.largest_text import largest_text
from fullstep.report.paper import Paper
from fullstep.report.plan_json import largest_as_dict, plan_as_dict
from fullstep.report.plan_text import plan_text, rejection_lines
from fullstep.report.wording import method_words


def size(job: Job) -> Answer:
    """100 GiB of state over the shards, 20 a row; needed is known to the byte."""
    holdings = Holdings(weights=100 * GIB / job.layout.shards, activations=20 * GIB * job.batch.micro_batch)
    bounds = Bounds.exact(sum(holdings))
    judgement = judge(bounds, OtherPeaks(), job.machine.usable_bytes, job.goal.reserve_fraction)
    memory = Memory(
        evidence="estimated", allocated_peak_bytes=bounds, reserved_peak_bytes=bounds, device_peak_bytes=bounds, needed_bytes=bounds,
        peak_at="backward", instants=(Instant("backward", holdings),), other_peaks=OtherPeaks(), usable_bytes=job.machine.usable_bytes,
        verdict=judgement.verdict, reason=judgement.reason,
    )  # fmt: skip
    return Answer(
        parameters=job.shape.parameters, trainable_parameters=1, memory=memory,
        host=HostMemory(evidence="estimated", memory_peak_bytes=GIB, at="load", verdict="unknown"),
    )  # fmt: skip


@pytest.fixture
def found(worksheet: Worksheet) -> Plan:
    return plan(worksheet, size)


def test_every_name_of_the_contract(found: Plan) -> None:
    document = plan_as_dict(found)
    assert {"schema", "verdict", "options", "rejected", "worksheet", "missing"} <= set(document)
    assert set(document["verdict"]) == {"answer", "reason", "sentence", "decide_by"}
    assert document["verdict"]["answer"] == "one_server_sharded"
    for out in document["rejected"]:
        assert {"what", "limit", "needed", "available", "unit", "remedy", "changes_training", "count"} <= set(out)
    for missing in document["missing"]:
        assert set(missing) == {"key", "why", "how"}


def test_an_option_is_an_answer_with_a_worksheet_that_gives_it(found: Plan) -> None:
    for option in plan_as_dict(found)["options"]:
        again: Any = complete(worksheet_from_mapping(option["worksheet"]))
        assert size(again).memory.needed_bytes.as_whole() == option["memory"]["needed_bytes"]
        assert option["memory"]["verdict"] == "fits"


def test_what_does_not_fit_says_how_much_is_needed(found: Plan) -> None:
    """A replica has 100 of state and at least one row of 20: 120, and 79.x are usable of 80."""
    ddp = next(out for out in plan_as_dict(found)["rejected"] if out["what"] == "DDP")
    assert ddp["needed"] == 120 * GIB
    assert ddp["limit"] == "memory" and ddp["unit"] == "bytes"


def test_the_text_leads_with_the_verdict(found: Plan) -> None:
    lines = plan_text(found, Paper()).splitlines()
    assert lines[3].startswith("  One server is enough: 8 x H100-SXM, ")
    text = "\n".join(lines)
    assert "DDP: at least 120.0 GiB needed at backward" in text
    assert "Missing" in text and "measured.allocated_peak_gib" in text


def test_the_text_of_nothing(worksheet: Worksheet) -> None:
    one = edit(worksheet, {"machine.gpus": 1, "machine.gpu": "RTX4090", "machine.gpu_memory_gib": None, "precision.weights": "bfloat16"})
    text = plan_text(plan(one, size), Paper())
    assert "Nothing fits on one RTX4090" in text
    assert "as written: one GPU: at least 120.0 GiB needed" in text


def test_largest(worksheet: Worksheet) -> None:
    """12.5 of state and 20 a row in what is usable of 80 less 5 %: three rows (72.5), not four (92.5)."""
    found = largest(worksheet, "micro_batch", size)
    text = largest_text(found, Paper())
    assert "Largest micro_batch that fits 8 x H100-SXM: 3." in text
    assert "batch.micro_batch = 4: 92.5 GiB needed" in text
    document = largest_as_dict(found)
    assert (document["key"], document["value"], document["next_value"]) == ("batch.micro_batch", 3, 4)
    assert document["option"]["worksheet"]["batch"]["micro_batch"] == 3


def test_the_order_of_the_options_is_told(found: Plan) -> None:
    text = " ".join(plan_text(found, Paper()).split())
    assert "Ranked by fit, nothing offloaded, fewer servers, less recomputation, less traffic, more rows at once" in text


def out(what: str, level: str, needed_gib: float) -> Rejection:
    remedy = {"layout.strategy": "fsdp", "layout.shards": None}
    return Rejection(what, "memory", needed_gib * GIB, 79.1 * GIB, "bytes", remedy, False, 3, "", level)


def test_levels_of_one_layout_share_a_line() -> None:
    """And a key that a remedy takes out is not shown."""
    levels = [
        out("ZeRO-1, no recomputation", "no recomputation", 118.9),
        out("ZeRO-1, selective recomputation", "selective recomputation", 98.7),
    ]
    (first, *rest) = rejection_lines([*levels, out("ZeRO-2, no recomputation", "no recomputation", 92.5)], Paper(width=400))
    assert first == (
        "  Not            ZeRO-1: at least 118.9 GiB needed without, 98.7 with selective recomputation, 79.1 there, 6 candidates;"
        " would fit with layout.strategy = fsdp"
    )
    assert len(rest) == 1 and "ZeRO-2, no recomputation: at least 92.5 GiB needed" in rest[0]


def test_what_would_help_stands_before_what_does_not(worksheet: Worksheet) -> None:
    labels = [line[:12].strip() for line in plan_text(plan(edit(worksheet, {"layout.strategy": "ddp"}), size), Paper()).splitlines()]
    assert labels.index("Would fit") < labels.index("Not")


def test_nothing_as_largest_says_what_would_help(worksheet: Worksheet) -> None:
    """100 of state on one card of 80: more cards of the node would share it."""
    found = largest(edit(worksheet, {"machine.gpus": 1}), "micro_batch", size)
    text = largest_text(found, Paper())
    assert "Not even the smallest micro_batch fits." in text and "Would fit" in text
    assert largest_as_dict(found)["remedies"][0]["changes"]


@pytest.mark.parametrize(
    ("kind", "words", "head"),
    [
        ("prefix_tuning", "number of virtual tokens", "prefix tuning with 16 virtual tokens"),
        ("bottleneck", "width of the bottleneck", "bottleneck of width 16"),
        ("lora", "rank", "LoRA rank 16"),
    ],
)
def test_a_rank_by_the_words_of_its_method(worksheet: Worksheet, kind: str, words: str, head: str) -> None:
    """12.5 of state and 20 a row: four rows need 92.5 of 80 whatever the rank."""
    adapted = edit(worksheet, {"method.kind": kind})
    assert f"Largest {words} that fits" in largest_text(largest(adapted, "rank", size), Paper())
    too_large = edit(adapted, {"batch.micro_batch": 4})
    assert f"Not even the smallest {words} fits." in largest_text(largest(too_large, "rank", size), Paper())
    assert method_words(complete(adapted)) == head
