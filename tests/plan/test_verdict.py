"""The verdict's three limits, exactly on them and beside them."""

from __future__ import annotations

import pytest

from fullstep.ledger import OtherPeaks
from fullstep.plan.verdict import judge, judge_host
from fullstep.quantities import GIB, Bounds


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (90, 95, "fits"),  # 100 * (1 - 0.05): on the line still leaves the reserve
        (90, 95.1, "tight"),
        (100, 110, "tight"),  # the low bound fills the card exactly
        (100.1, 110, "does_not_fit"),
    ],
)
def test_the_step_is_judged_by_the_bound_that_is_certain(low: float, high: float, verdict: str) -> None:
    assert judge(Bounds(low, low, high), OtherPeaks(), 100, 0.05).verdict == verdict


def test_without_a_card_nothing_is_said() -> None:
    judgement = judge(Bounds(1, 1, 1), OtherPeaks(), None, 0.05)
    assert judgement.verdict == "unknown"
    assert "machine.gpu" in judgement.reason


@pytest.mark.parametrize(("peak", "verdict"), [(95, "fits"), (96, "tight"), (100, "tight"), (101, "does_not_fit")])
@pytest.mark.parametrize("name", ["load", "evaluation", "save"])
def test_peaks_outside_the_step_count(name: str, peak: float, verdict: str) -> None:
    assert judge(Bounds(1, 2, 3), OtherPeaks()._replace(**{name: peak}), 100, 0.05).verdict == verdict


def test_the_reason_names_what_ran_out() -> None:
    reason = judge(Bounds(10 * GIB, 11 * GIB, 12 * GIB), OtherPeaks(load=30 * GIB, save=26 * GIB), 24 * GIB, 0).reason
    assert reason == "30.0 GiB are needed while the model is loaded, 24.0 GiB are there"
    reason = judge(Bounds(30 * GIB, 31 * GIB, 32.5 * GIB), OtherPeaks(), 24 * GIB, 0).reason
    assert reason == "the step needs 30.0 to 32.5 GiB, 24.0 GiB are there"


def test_a_step_that_is_too_large_is_named_before_a_load_that_is_larger() -> None:
    assert "the step needs" in judge(Bounds(30, 31, 32), OtherPeaks(load=40), 24, 0).reason


@pytest.mark.parametrize(("needed", "verdict"), [(95, "fits"), (96, "tight"), (100, "tight"), (101, "does_not_fit")])
def test_host_memory_by_the_same_rule(needed: float, verdict: str) -> None:
    assert judge_host(needed, 100, 0.05) == verdict
