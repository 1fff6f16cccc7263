"""peft's measured runs beside the stored traces."""

from __future__ import annotations

import json
from pathlib import Path

import peft_runs
import pytest

from fullstep.job import settings_of, worksheet_from_mapping
from fullstep.lab.allocator import RELEASE


def test_the_page_is_what_the_stored_traces_say() -> None:
    assert peft_runs.PAGE.read_text(encoding="utf-8") == peft_runs.page()


def test_every_run_has_a_trace_at_each_length_or_a_reason() -> None:
    rows = peft_runs.rows()
    assert len(rows) == 29
    assert len({row.id for row in rows}) == len(rows)
    for row in rows:
        assert bool(row.refused) != (len(row.traced_bytes) == len(peft_runs.LENGTHS)), row.name


def test_every_worksheet_is_of_the_run_that_its_source_describes() -> None:
    for line in Path(peft_runs.RUNS).read_text(encoding="utf-8").splitlines():
        run = json.loads(line)
        assert run["source"].startswith("huggingface/peft:method_comparison/MetaMathQA/results/")
        settings = settings_of(worksheet_from_mapping(run["worksheet"]))
        assert (settings.batch.micro_batch, settings.batch.packed, settings.precision.autocast) == (4, False, False)
        assert settings.step.keeps_outputs


def test_mean_error_where_the_length_is_known() -> None:
    """At the length where two of the runs are met, the others are predictions."""
    others = [row for row in peft_runs.rows() if row.traced_bytes and row.id not in peft_runs.LONGEST_FROM]
    assert peft_runs.mean_errors_percent(others)[1] < 2


def test_errors_are_counted_without_their_signs() -> None:
    row = peft_runs.Row("a", 100, (), (110, 95), (1, 1), "")
    other = peft_runs.Row("b", 100, (), (96, 99), (1, 1), "")
    assert row.errors_percent() == pytest.approx((10, -5))
    assert peft_runs.mean_errors_percent([row, other]) == pytest.approx((7, 3))


def test_a_method_is_the_same_where_all_of_it_can_be_said() -> None:
    row = peft_runs.Row("a", 100, (), (110, 95), (7, 7), "")
    assert row.same_method()
    assert not row._replace(trainable=(7, 8)).same_method()
    assert not row._replace(not_stated=("mini_r = 64",)).same_method()
    assert not row._replace(traced_bytes=()).same_method()


def test_the_second_step_meets_an_emptied_cache() -> None:
    """Weights of 30 MiB stay. The first step leaves a block of 100 MiB behind, which is given back; the second one asks for 40."""
    mib = 2**20

    class Segment:
        def __init__(self, step: int) -> None:
            self.step = step

    class Tensor:
        holding = "weights"

    class Stream:
        segments = (Segment(0), Segment(1), Segment(2))
        tensors = (Tensor(), Tensor(), Tensor())
        which = (0, 1, 1, 2, 2)
        sizes = (30 * mib, 100 * mib, RELEASE, 40 * mib, RELEASE)
        streams = (0, 0, 0, 0, 0)
        segment_of_event = (0, 1, 1, 2, 2)

    assert peft_runs.behind_an_emptied_cache(Stream()) == {"allocated_bytes": 70 * mib, "reserved_bytes": 70 * mib}
