"""Pruning loses nothing: the best option is that of asking every single candidate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import pytest

from fullstep.job import Worksheet
from fullstep.plan.candidates import LAYOUT_DETAILS, batch_changes, keeps_training, strategies_for
from fullstep.plan.ranking import rank
from fullstep.plan.savers import LEVELS, free_savers, level_changes
from fullstep.plan.search import plan
from fullstep.plan.trial import Size, Trial, Workbench

from .by_hand import by_hand


def every_candidate(worksheet: Worksheet, size: Size, rows_per_rank: int) -> Iterator[Trial]:
    bench = Workbench(worksheet, size, budget=10**6)
    written = bench.as_written.job
    divisors = [rows for rows in range(1, rows_per_rank + 1) if rows_per_rank % rows == 0]
    for strategy, level, rows, saves in product(strategies_for(written, 1), LEVELS, divisors, (False, True)):
        if level.offload == 2 and strategy not in ("zero1", "zero2", "zero3"):
            continue  # FSDP offloads optimizers only together with parameters
        if level.offload == 3 and strategy not in ("zero3", "fsdp"):
            continue
        if level.in_backward and strategy != "fsdp":
            continue
        layout = {} if strategy == written.layout.strategy else {"layout.strategy": strategy, **dict.fromkeys(LAYOUT_DETAILS)}
        base = bench.try_out({**layout, **batch_changes(rows, rows_per_rank), **level_changes(level)})
        if not isinstance(base, Trial) or not keeps_training(written, base.job):
            continue
        free = free_savers(base.job) if saves else {}
        trial = bench.try_out({**layout, **batch_changes(rows, rows_per_rank), **level_changes(level), **free})
        if isinstance(trial, Trial):
            yield trial


@pytest.mark.parametrize("gpu", ["H100-SXM", "RTX4090"])
@pytest.mark.parametrize("rows_per_rank", [1, 6, 8])
@pytest.mark.parametrize("state_gib", [15, 30, 60, 150, 400, 900])
def test_the_best_of_all(sheet: Callable[..., Worksheet], state_gib: float, rows_per_rank: int, gpu: str) -> None:
    size = by_hand(state_gib=state_gib)
    worksheet = sheet(batch={"accumulation": rows_per_rank}, machine={"gpu": gpu})
    best = min(rank(trial)[:-1] for trial in every_candidate(worksheet, size, rows_per_rank))
    options = plan(worksheet, size).options
    if best[0] == 3:  # not even the best fits
        assert not options
    else:
        assert rank(options[0])[:-1] == best
