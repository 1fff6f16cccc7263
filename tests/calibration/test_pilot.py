"""A pilot's figures in the place of the estimate: by hand, in GiB."""

from __future__ import annotations

import pytest

from fullstep.calibration import Comparison, compare_with_pilot, outrank
from fullstep.ledger import Holdings, Instant, MemoryEstimate, OtherPeaks
from fullstep.quantities import GIB, Bounds


def gib(low: float, likely: float, high: float) -> Bounds:
    return Bounds(low * GIB, likely * GIB, high * GIB)


ESTIMATE = MemoryEstimate(
    parameters=8, trainable_parameters=8, instants=(Instant("forward", Holdings(weights=20 * GIB)),), peak_at="forward",
    allocated=gib(18, 20, 22), reserved=gib(20, 23, 28), device=gib(21, 24.5, 30), needed=gib(19, 21.5, 24),
    other_peaks=OtherPeaks(), host_bytes=1.0, host_at="load",
)  # fmt: skip


def test_without_a_pilot_the_estimate_stays() -> None:
    assert outrank(ESTIMATE, {}) is ESTIMATE
    assert outrank(ESTIMATE, {"step_seconds": 2.0}) is ESTIMATE


def test_allocated_is_exact_and_the_rest_keeps_its_distance() -> None:
    """reserved lay 2, 3 and 6 above allocated, device 3, 4.5 and 8, needed 1, 1.5 and 2."""
    got = outrank(ESTIMATE, {"allocated_peak_gib": 25})
    assert got.allocated == gib(25, 25, 25)
    assert got.reserved == gib(27, 28, 31)
    assert got.device == gib(28, 29.5, 33)
    assert got.needed == gib(26, 26.5, 27)


def test_reserved_bounds_what_lies_inside_it() -> None:
    """device lay 1, 1.5 and 2 above reserved; 22 reserved cannot hold more than 22 allocated."""
    got = outrank(ESTIMATE, {"reserved_peak_gib": 21})
    assert got.reserved == gib(21, 21, 21)
    assert got.device == gib(22, 22.5, 23)
    assert got.allocated == gib(18, 20, 21)
    assert got.needed == gib(19, 21.5, 23)


def test_what_the_device_showed_bounds_everything() -> None:
    got = outrank(ESTIMATE, {"device_peak_gib": 22})
    assert got.device == gib(22, 22, 22)
    assert got.reserved == gib(20, 22, 22)
    assert got.needed == gib(19, 21.5, 22)


@pytest.mark.parametrize("figures", [(30, 31, 33), (1, 1, 1), (40, 20, 10)])
def test_bounds_stay_in_order(figures: tuple[float, float, float]) -> None:
    keys = ("allocated_peak_gib", "reserved_peak_gib", "device_peak_gib")
    got = outrank(ESTIMATE, dict(zip(keys, figures, strict=True)))
    for bounds in (got.allocated, got.reserved, got.device, got.needed):
        assert bounds.low <= bounds.likely <= bounds.high
    assert got.instants is ESTIMATE.instants


def test_measured_stands_beside_estimated() -> None:
    assert compare_with_pilot(ESTIMATE, {"allocated_peak_gib": 25, "step_seconds": 2.5}) == {
        "allocated_peak_bytes": Comparison(25 * GIB, ESTIMATE.allocated),
        "step_seconds": Comparison(2.5, None),
    }
