"""What a record may be used for, what it does to an estimate, and where its differences come from."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from tiny_jobs import LLAMA

from fullstep.calibration.evidence import Residual, measured_of, places_of, residuals_of, steady_peaks
from fullstep.calibration.narrowing import narrow_memory, narrow_step, narrowed
from fullstep.calibration.recorded import Match, Recorded, match, recorded
from fullstep.calibration.residuals import beside
from fullstep.hardware import find_card
from fullstep.job import Job, complete, worksheet_from_mapping
from fullstep.ledger import Holdings, Instant, MemoryEstimate, OtherPeaks, StepPart, StepTime
from fullstep.ledger.probe import OutOfMemory, Overlap, Probe, ProbedRank, StepSample, Stretch
from fullstep.quantities import GIB, MIB, Bounds

SHEET: dict[str, Any] = {"model": {"config": LLAMA, "name": "tiny"}, "machine": {"gpu": "H100-SXM"}}
WORKSPACES = 2 * 32 * MIB
"""of cuBLAS on an H100: 32 MiB for each of two handles"""


def job(**changes: Any) -> Job:
    """Of :data:`SHEET`; ``method__kind="lora"`` is a key."""
    mapping = copy.deepcopy(SHEET)
    for name, value in changes.items():
        section, _, key = name.partition("__")
        if key:
            mapping.setdefault(section, {})[key] = value
        else:
            mapping[section] = value
    return complete(worksheet_from_mapping(mapping))


def probe(device: str = "NVIDIA H100 80GB HBM3", **changes: Any) -> Probe:
    """One rank: 100 stay between steps, 260 at the peak, 300 reserved, 400 used; 2 s a step, of which 0.5 s wait for data."""
    on_gpu = device != "cpu"
    rows = [
        (0, 0, "load", 80, 60, 900), (1, 1, "forward", 150, 140, 300), (1, 0, "gradients_cleared", 140, 100, 300),
        (2, 1, "forward", 180, 170, 300), (2, 1, "backward", 260, 120, 300), (2, 0, "optimizer_step", 130, 120, 300),
        (2, 0, "gradients_cleared", 120, 100, 300), (2, 0, "evaluation", 500, 100, 600),
    ]  # fmt: skip
    memory = tuple(Stretch(*row[:5], row[5] if on_gpu else None, 400 if on_gpu else None) for row in rows)
    steps = (StepSample(3, 2.0, 0.5, 64),)
    rank = ProbedRank(rank=0, device=device, memory=memory, steps=steps, host_peak_bytes=None, overlap=(Overlap(1.0, 0.0, 0.0, 2.0),))
    whole = Probe(
        outcome="completed", reason="", made="2026-01-31T12:00:00Z", command=("fullstep", "probe"), seed=0, model="tiny", parameters=None,
        trainable_parameters=None, worksheet=SHEET, environment={}, ranks=(rank,), world_size=1,
    )  # fmt: skip
    return replace(whole, **changes)


def record(device: str = "NVIDIA H100 80GB HBM3", **changes: Any) -> Recorded:
    found = recorded("a.json", probe(device, **changes), worksheet_from_mapping(SHEET))
    assert isinstance(found, Recorded), found
    return found


def test_the_same_worksheet_on_the_same_card() -> None:
    assert match(record(), job()) == Match("same", "the same worksheet on the same card")
    assert match(record(), job(data__steps=100, goal__reserve_fraction=0.1)).kind == "same"


def test_the_card_is_the_one_that_the_driver_names() -> None:
    """Whatever the worksheet of the record says: it was written for an H100, and ran on an A30."""
    found = match(record("NVIDIA A30"), job())
    assert found == Match("refused", "it ran on A30, not on H100-SXM")
    assert match(record("NVIDIA A30"), job(machine__gpu="A30")).kind == "same"


@pytest.mark.parametrize(
    ("changes", "kind", "said"),
    [
        ({"batch__micro_batch": 2}, "near", "batch.micro_batch 1 there, 2 here"),
        ({"step__activation_checkpointing": "full"}, "near", "step.activation_checkpointing none there, full here"),
        ({"model__config": {**LLAMA, "num_hidden_layers": 3}}, "near", "model tiny there, tiny here"),
        ({"model__config": {**LLAMA, "model_type": "qwen2"}}, "refused", "model family llama there, qwen2 here"),
        ({"method__kind": "lora"}, "refused", "method.kind full there, lora here"),
        ({"machine__gpus": 2, "layout__strategy": "ddp"}, "refused", "layout.strategy single there, ddp here"),
        ({"machine__gpu": "A30"}, "refused", "it ran on H100-SXM, not on A30"),
        ({"machine": {}}, "refused", "the worksheet names no GPU"),
    ],
)
def test_near_or_refused(changes: dict[str, Any], kind: str, said: str) -> None:
    found = match(record(), job(**changes))
    assert found.kind == kind and said in found.why


def test_an_evaluation_that_did_not_run_leaves_a_record_near() -> None:
    """What was never measured would otherwise count as what fits."""
    evaluates = job(evaluation__every_steps=10, evaluation__rows=8)
    (rank,) = probe().ranks
    without = record(ranks=(replace(rank, memory=tuple(each for each in rank.memory if each.phase != "evaluation")),))
    found = match(without, evaluates)
    assert found.kind == "near" and "it ran no evaluation" in found.why
    assert match(without, job()).kind == "same" and match(record(), evaluates).kind == "same"


@pytest.mark.parametrize(("key", "value"), [("network_gbit_s", 10.0), ("rdma", False)])
def test_another_network_between_nodes_leaves_a_record_near(key: str, value: Any) -> None:
    machine = {"gpu": "H100-SXM", "gpus": 1, "nodes": 2, "network_gbit_s": 400.0, "rdma": True}
    of = {**SHEET, "machine": machine, "layout": {"strategy": "ddp"}}
    (rank,) = probe().ranks
    there = record(ranks=(rank, replace(rank, rank=1)), world_size=2, worksheet=of)
    assert match(there, job(machine=machine, layout__strategy="ddp")).kind == "same"
    found = match(there, job(machine={**machine, key: value}, layout__strategy="ddp"))
    assert found.kind == "near" and f"machine.{key}" in found.why


def test_processors_tell_what_the_very_program_allocates_and_no_more() -> None:
    """260 bytes, and the workspaces that libraries of a GPU add."""
    found = record("cpu")
    assert match(found, job()).kind == match(found, job(machine__gpu="A30")).kind == "same"
    assert match(found, job(batch__micro_batch=2)).kind == "refused"
    assert measured_of(found, find_card("H100-SXM")) == {"allocated_peak_gib": (260 + WORKSPACES) / GIB}


def test_shards_over_gloo_tell_nothing_of_shards_over_nccl() -> None:
    sheet = worksheet_from_mapping({**SHEET, "machine": {"gpus": 2}, "layout": {"strategy": "fsdp"}})
    (rank,) = probe("cpu").ranks
    found = recorded("a.json", probe("cpu", ranks=(rank, replace(rank, rank=1)), world_size=2, worksheet=sheet.as_dict()), sheet)
    assert isinstance(found, Recorded), found
    here = match(found, complete(sheet))
    assert here.kind == "refused" and "over gloo, whose reduce-scatter holds buffers that no GPU has" in here.why


def test_figures_of_the_steady_step_alone() -> None:
    """Neither loading (900 reserved) nor the evaluation (500 allocated, 600 reserved)."""
    assert steady_peaks(probe()) == {"allocated": 260, "reserved": 300, "device": 400}
    gib = {"allocated_peak_gib": 260 / GIB, "reserved_peak_gib": 300 / GIB, "device_peak_gib": 400 / GIB}
    assert measured_of(record(), None) == {**gib, "step_seconds": 2.0, "exposed_communication_fraction": 0.0}


RAN_OUT = OutOfMemory(0, 1, "backward", GIB, 2 * GIB, None, None)
NO_USE: dict[str, tuple[dict[str, Any], str]] = {
    "of a command": ({"worksheet": None}, "it measured a command"),
    "out of memory": ({"outcome": "out_of_memory", "out_of_memory": RAN_OUT}, "at least 3.0 GiB are needed"),
    "a rank is missing": ({"world_size": 2}, "only 1 of 2 ranks"),
    "a path of another machine": ({"worksheet": {**SHEET, "model": {"config": "config.json"}}}, "not opened here"),
    "a model to look up": ({"worksheet": {**SHEET, "model": {"name": "somebody/new"}}}, "not looked up for a record"),
    "no model": ({"worksheet": {"machine": {"gpu": "A30"}}}, "names no model"),
    "no sound worksheet": ({"worksheet": {**SHEET, "batch": {"micro_batch": -1}}}, "batch.micro_batch"),
    "other ranks": ({"worksheet": {**SHEET, "machine": {"gpu": "A30", "gpus": 4}}}, "has 4 GPUs, and 1 ranks ran"),
    "an unknown card": ({"ranks": (replace(probe().ranks[0], device="GPU of tomorrow"),)}, "no card of the catalogue"),
}  # fmt: skip


@pytest.mark.parametrize("name", NO_USE)
def test_records_of_no_use_say_why(name: str) -> None:
    changes, said = NO_USE[name]
    found = recorded("a.json", probe(**changes), worksheet_from_mapping(SHEET))
    assert isinstance(found, str) and said in found


def test_no_file_of_a_record_is_opened_and_no_model_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("looked up")

    monkeypatch.setattr("fullstep.models.hub.fetch_config", refuse)
    monkeypatch.setattr("fullstep.models.raw_config.read_config", refuse)
    for name in ("a path of another machine", "a model to look up"):
        assert isinstance(recorded("a.json", probe(**NO_USE[name][0]), worksheet_from_mapping(SHEET)), str)


ESTIMATE = MemoryEstimate(
    parameters=8, trainable_parameters=8, peak_at="backward",
    instants=(Instant("forward", Holdings(weights=50, optimizer_states=40, buffers=20, activations=60)),  # 110 stay, 60 on top
              Instant("backward", Holdings(weights=50, optimizer_states=40, buffers=20, activations=90, gradients=50))),
    allocated=Bounds(200, 250, 290), reserved=Bounds(240, 280, 320), device=Bounds(300, 350, 390), needed=Bounds(220, 270, 330),
    other_peaks=OtherPeaks(load=70, evaluation=450), host_bytes=1.0, host_at="load",
)  # fmt: skip
STEP = StepTime(
    evidence="estimated", seconds=Bounds(1.2, 2.0, 3.0), tokens_per_second_per_gpu=Bounds(100, 150, 250),
    model_flops_utilization=Bounds(0.2, 0.3, 0.5), exposed_communication_fraction=Bounds(0.1, 0.25, 0.5), bound_by="compute",
    parts=(StepPart("products", Bounds(1.0, 1.5, 2.0), "compute"), StepPart("communication not hidden", Bounds(0.2, 0.5, 1.0), "network")),
)  # fmt: skip


def test_residuals_and_their_places() -> None:
    """allocated 260: 10 of the 40 above 250; reserved 300: 20 of 40; device 400 is outside; 2 s without 0.5 s for data compute 1.5 s."""
    found = residuals_of(record(), ESTIMATE, STEP)
    assert [(each.what, each.measured, each.place) for each in found] == [
        ("allocated", 260, 0.25), ("reserved", 300, 0.5), ("device", 400, None), ("compute", 1.5, 0.0),
    ]  # fmt: skip
    assert places_of(found) == {"allocated": (0.25,), "reserved": (0.5,), "compute": (0.0,)}


def test_a_near_record_narrows_memory_by_half_of_what_is_left() -> None:
    """allocated: 250 + 0.25 * 40 = 260, half way to 200 and 290; needed: 270 + 0.25 * 60 = 285, half way to 220 and 330."""
    got = narrow_memory(ESTIMATE, {"allocated": [0.25]})
    assert got.allocated == Bounds(230, 260, 275)
    assert got.needed == Bounds(252.5, 285, 307.5)
    assert got.reserved == ESTIMATE.reserved and got.device == ESTIMATE.device


def test_two_near_records_span_their_places() -> None:
    """Places -0.5 and 0.5 of (200, 250, 290) are 225 and 270; half of 25 and of 20 stays beyond them."""
    assert narrowed(ESTIMATE.allocated, [-0.5, 0.5]) == Bounds(212.5, 250, 280)


def test_a_near_record_narrows_what_is_achieved() -> None:
    """Compute at its low end (1.0, half way up to 2.0), communication half way down to its low end: 0.35, then 0.275 and 0.675."""
    got = narrow_step(STEP, {"compute": [-1.0], "communication": [-0.5]})
    assert [part.seconds for part in got.parts] == [Bounds(1.0, 1.0, 1.5), Bounds(*map(pytest.approx, (0.275, 0.35, 0.675)))]
    assert got.seconds == Bounds(*map(pytest.approx, (1.275, 1.35, 2.175)))
    assert got.tokens_per_second_per_gpu.likely == pytest.approx(150 * 2.0 / 1.35)
    assert got.exposed_communication_fraction is not None and got.exposed_communication_fraction.likely == pytest.approx(0.35 / 1.35)
    assert narrow_step(STEP, {}) is STEP


ENDS = some.lists(some.floats(0, 1e12), min_size=3, max_size=3).map(sorted)


@given(ENDS, some.lists(some.floats(-1, 1), min_size=1, max_size=4))
def test_narrowed_bounds_stay_in_order_and_inside(ends: list[float], places: list[float]) -> None:
    bounds = Bounds(*ends)
    got = narrowed(bounds, places)
    slack = 1e-9 * max(ends)
    assert bounds.low <= got.low + slack and got.high <= bounds.high + slack
    assert got.low <= got.likely + slack and got.likely <= got.high + slack
    assert got.high - got.low <= bounds.high - bounds.low + slack


def test_outside_of_its_own_bounds_a_record_narrows_nothing() -> None:
    assert places_of([Residual("allocated", 291, ESTIMATE.allocated), Residual("reserved", 239.9, ESTIMATE.reserved)]) == {}


def test_line_by_line_and_by_mechanism() -> None:
    """100 stay between steps where 110 were expected; the forward pass adds 80 to them, 60 were expected."""
    lines = {(line.group, line.what): line for line in beside(record(), ESTIMATE, STEP, ESTIMATE)}
    assert lines["peaks", "allocated"].measured == 260 and lines["peaks", "allocated"].traced == 250
    assert not lines["peaks", "device"].is_inside
    assert lines["instants", "forward"][3:] == (180, Bounds.exact(170), 170)
    assert lines["instants", "load"][3:] == (80, Bounds.exact(70), None)
    assert lines["mechanisms", "between steps"][3:5] == (100, Bounds.exact(110))
    assert lines["mechanisms", "forward, on top"][3:5] == (80, Bounds.exact(60))
    assert lines["mechanisms", "backward, on top"][3:5] == (160, Bounds.exact(140))
    assert lines["time", "step"].difference == 0.0


def test_processors_are_compared_without_workspaces() -> None:
    """There are none yet while the model is loaded."""
    others = OtherPeaks(load=70, evaluation=450 + WORKSPACES)
    large = ESTIMATE._replace(instants=(Instant("forward", Holdings(weights=50, buffers=20 + WORKSPACES)),), other_peaks=others)
    lines = {(line.group, line.what): line for line in beside(record("cpu"), large, STEP)}
    assert lines["instants", "forward"].estimated == Bounds.exact(70)
    assert lines["mechanisms", "between steps"].estimated == Bounds.exact(70)
    assert lines["instants", "load"].estimated == Bounds.exact(70)
    assert lines["instants", "evaluation"].estimated == Bounds.exact(450)
    assert ("time", "step") not in lines
