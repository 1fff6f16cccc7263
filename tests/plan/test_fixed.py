"""No search alters a key under ``plan.fixed``: neither by what it states nor by a default that moves. Figures: see by_hand.py."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fullstep.job import Worksheet, complete
from fullstep.plan.candidates import divisors, row_splits
from fullstep.plan.largest import largest
from fullstep.plan.search import plan
from fullstep.plan.trial import Refusal, Size, Trial, Workbench, held

from .by_hand import by_hand

Sheet = Callable[..., Worksheet]
FREE = (
    "layout.strategy", "layout.implementation", "layout.shards", "layout.reshard_after_forward", "layout.sync_every_micro_batch",
    "layout.loading", "layout.offload_optimizer", "layout.offload_parameters", "precision.reduce", "precision.gradients",
    "precision.autocast", "optimizer.implementation", "optimizer.in_backward", "batch.micro_batch", "batch.accumulation",
    "batch.global_rows", "step.activation_checkpointing", "step.activation_offload", "step.attention", "step.loss",
    "step.expandable_segments", "machine.gpu", "machine.gpus", "machine.nodes", "machine.gpu_memory_gib",
)  # fmt: skip
SECTIONS: tuple[dict[str, dict[str, Any]], ...] = (
    {},
    {"layout": {"strategy": "fsdp", "shards": 4}},
    {"layout": {"strategy": "zero3"}, "batch": {"micro_batch": 4, "accumulation": 2}},
    {"layout": {"strategy": "ddp", "offload_optimizer": True}, "batch": {"micro_batch": 8, "global_rows": 64}},
    {"step": {"activation_checkpointing": "selective"}, "machine": {"nodes": 2}, "goal": {"max_nodes": 4}},
    {"machine": {"gpu": None}, "batch": {"global_rows": 16}},
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
@given(
    fixed=st.lists(st.sampled_from(FREE), min_size=1, max_size=4, unique=True),
    sections=st.sampled_from(SECTIONS),
    state_gib=st.sampled_from([30, 80, 300, 900]),
)
def test_no_option_and_no_remedy_alters_a_fixed_key(
    sheet: Sheet, fixed: list[str], sections: dict[str, dict[str, Any]], state_gib: float
) -> None:
    worksheet = sheet(**sections, plan={"fixed": fixed})
    written = complete(worksheet)
    found = plan(worksheet, by_hand(state_gib=state_gib))
    for trial in found.options:
        assert {key: held(complete(trial.worksheet), key) for key in fixed} == {key: held(written, key) for key in fixed}
    for remedy in found.remedies:
        assert not [key for key in fixed if key in remedy.changes and remedy.changes[key] != held(written, key)]


def test_both_halves_of_the_batch_are_fixed(sheet: Sheet, size: Size) -> None:
    """Eight ranks of 2 x 4 rows: one GPU of them would need 64 rows, which neither half may bring."""
    worksheet = sheet(batch={"micro_batch": 2, "accumulation": 4}, plan={"fixed": ["batch.micro_batch", "batch.accumulation"]})
    bench = Workbench(worksheet, size)
    assert row_splits(64, 8, bench.as_written.job, bench) == [2]
    assert row_splits(64, 1, bench.as_written.job, bench) == []


def test_stated_shards_stay_under_another_strategy(sheet: Sheet, size: Size) -> None:
    found = plan(sheet(layout={"strategy": "fsdp", "shards": 4}, plan={"fixed": ["layout.shards"]}), size)
    assert len({trial.job.layout.strategy for trial in found.options}) > 1
    assert {trial.worksheet.stated("layout.shards") for trial in found.options} == {4}


def test_a_default_that_another_strategy_moves_is_stated(sheet: Sheet, size: Size) -> None:
    """Replicas reduce in the dtype of the gradients, shards in float32: the fixed one goes along."""
    worksheet = sheet(precision={"weights": "bfloat16"}, layout={"strategy": "ddp"}, plan={"fixed": ["precision.reduce"]})
    trial = Workbench(worksheet, size).try_out({"layout.strategy": "fsdp"})
    assert isinstance(trial, Trial)
    assert trial.job.precision.reduce == "bfloat16"
    assert trial.changes == {"layout.strategy": "fsdp", "precision.reduce": "bfloat16"}


def test_a_change_to_a_fixed_key_is_refused_by_name(sheet: Sheet, size: Size) -> None:
    refusal = Workbench(sheet(plan={"fixed": ["layout.strategy"]}), size).try_out({"layout.strategy": "ddp"})
    assert isinstance(refusal, Refusal)
    assert "layout.strategy" in str(refusal.error)


def test_the_largest_varies_what_the_search_may_not(sheet: Sheet, size: Size) -> None:
    free = largest(sheet(), "micro_batch", size)
    assert largest(sheet(plan={"fixed": ["batch.micro_batch"]}), "micro_batch", size).value == free.value is not None


@pytest.mark.parametrize(("number", "expected"), [(1, [1]), (16, [1, 2, 4, 8, 16]), (7, [1, 7])])
def test_divisors(number: int, expected: list[int]) -> None:
    assert divisors(number, number) == expected
    assert len(divisors(735_134_400, 10**9)) == 1344  # the most that any number below 10^9 has


def test_rows_that_no_card_could_hold_are_not_tried(sheet: Sheet, size: Size) -> None:
    """4,096 tokens x 4,096 wide at one byte are 16 MiB a row, and 80 GiB are 5,120 of those."""
    bench = Workbench(sheet(batch={"global_rows": 8 * 2**20}), size)
    assert row_splits(8 * 2**20, 8, bench.as_written.job, bench)[-1] == 4096


@pytest.mark.parametrize("batch", [{"global_rows": 10**9}, {"global_rows": 735_134_400, "micro_batch": 12_600}, {"accumulation": 10**9}])
def test_very_many_rows_are_answered_at_once(sheet: Sheet, batch: dict[str, int]) -> None:
    start = time.process_time()
    plan(sheet(batch=batch), by_hand(state_gib=900))
    assert time.process_time() - start < 5  # a scan of every number up to them took minutes
