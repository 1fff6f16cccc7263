"""What a job uses of rented machines, by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fullstep.job import Worksheet, complete
from fullstep.ledger import Run
from fullstep.offers.assumptions import assumed
from fullstep.physics.checkpointing import export_bytes
from fullstep.plan.usage import cost_assumptions, usage_of
from fullstep.quantities import Bounds

Sheet = Callable[..., Worksheet]
PARAMETERS = 8_030_261_248


def run(low: float, likely: float, high: float, evaluation: float = 0.0) -> Run:
    return Run(optimizer_steps=10, seconds=Bounds(low, likely, high), evaluation_seconds=Bounds.exact(evaluation))


def test_hours_of_the_run_at_each_end(sheet: Sheet) -> None:
    usage = usage_of(complete(sheet()), run(100, 200, 400, evaluation=10))
    assert [each.steps_seconds for each in usage] == [90, 190, 390]
    assert [each.evaluation_seconds for each in usage] == [10, 10, 10]


def test_what_is_stored_and_taken_out(sheet: Sheet) -> None:
    """float32: 96.4 GB a checkpoint (weights and two states), two kept and one being written; 32.1 GB of result, 16.1 of weights, 50 of
    environment. What the container adds is below a thousandth."""
    usage = usage_of(complete(sheet()), run(1, 1, 1)).likely
    assert usage.result_gb == pytest.approx(PARAMETERS * 4 / 1e9)
    assert usage.disk_gb == pytest.approx(50 + (PARAMETERS * 2 + 3 * PARAMETERS * 12 + PARAMETERS * 4) / 1e9, rel=1e-3)


def test_an_adapter_is_all_that_is_taken_out(sheet: Sheet) -> None:
    """Rank 16 on q and v of 32 blocks: ``32 * 16 * (4096 + 4096 + 4096 + 1024)`` elements of four bytes."""
    job = complete(sheet(method={"kind": "lora", "targets": ["q_proj", "v_proj"]}))
    assert export_bytes(job) == 32 * 16 * (4096 + 4096 + 4096 + 1024) * 4


def test_saves_by_the_rate_of_the_storage(sheet: Sheet) -> None:
    """96.4 GB at 2 GB/s: 48 s at every end; where no rate is stated, by the assumed one, slowest for the high end."""
    stated = usage_of(complete(sheet(machine={"storage_write_gb_s": 2})), run(1, 1, 1))
    assert [each.save_seconds for each in stated] == pytest.approx([PARAMETERS * 12 / 2e9] * 3, rel=1e-3)
    open_rate = usage_of(complete(sheet()), run(1, 1, 1))
    rates = assumed("write").bounds
    assert [each.save_seconds for each in open_rate] == pytest.approx([PARAMETERS * 12 / rate for rate in reversed(rates)], rel=1e-3)


def test_runs_and_pauses_as_stated(sheet: Sheet) -> None:
    usage = usage_of(complete(sheet(goal={"runs": 4, "idle_hours_between_runs": 6})), run(1, 1, 1)).likely
    assert (usage.runs, usage.idle_seconds) == (4, 6 * 3600)


def test_what_nobody_stated_is_named(sheet: Sheet) -> None:
    assert {each.key for each in cost_assumptions(complete(sheet()), interruptible=True)} == {
        "cost.start_hours", "cost.install_hours", "cost.download_gb_s", "cost.write_gb_s", "cost.read_gb_s", "cost.interrupted_every_hours",
        "cost.wait_hours",
    }  # fmt: skip
    stated = complete(sheet(machine={"storage_write_gb_s": 2, "storage_read_gb_s": 2}))
    told = cost_assumptions(stated, interruptible=True, stated=frozenset(("interrupted_every",)))
    assert [each.key for each in told] == ["cost.start_hours", "cost.install_hours", "cost.download_gb_s", "cost.wait_hours"]
