"""Bus bandwidth and the fit, by arithmetic that a reader can redo."""

from __future__ import annotations

import pytest

from fullstep.ledger.link import LINK_COLLECTIVES, LinkSample, bus_factor, fitted
from fullstep.physics.network.collective import ring_bytes


@pytest.mark.parametrize(
    ("sample", "algorithm", "bus"),
    [
        (LinkSample("all_reduce", 8_000_000, 8, (0.004,)), 2e9, 3.5e9),  # 2 * 7/8
        (LinkSample("all_gather", 8_000_000, 8, (0.004,)), 2e9, 1.75e9),  # 7/8
        (LinkSample("reduce_scatter", 9_000_000, 3, (0.003,)), 3e9, 2e9),  # 2/3
        (LinkSample("send", 8_000_000, 8, (0.004,)), 2e9, 2e9),
        (LinkSample("all_reduce", 4_000, 2, (0.001,)), 4e6, 4e6),  # 2 * 1/2
    ],
)
def test_bandwidths_of_nccl_tests(sample: LinkSample, algorithm: float, bus: float) -> None:
    assert sample.algorithm_bytes_per_second == pytest.approx(algorithm)
    assert sample.bus_bytes_per_second == pytest.approx(bus)


def test_a_row_that_nccl_tests_printed() -> None:
    """sendrecv_perf on 8 A100: 134217728 B in 1211.2 us, algbw 110.81, busbw 110.81 (li-plus/playground, cuda/nccl.md)."""
    sample = LinkSample("send", 134_217_728, 8, (1211.2e-6,))
    assert sample.algorithm_bytes_per_second / 1e9 == pytest.approx(110.81, abs=0.005)
    assert sample.bus_bytes_per_second / 1e9 == pytest.approx(110.81, abs=0.005)


def test_what_a_rank_sends_is_what_the_network_model_says() -> None:
    for collective in LINK_COLLECTIVES:
        for ranks in (2, 3, 8, 64):
            assert bus_factor(collective, ranks) == pytest.approx(ring_bytes(collective, 1.0, ranks))


def test_median_and_quartiles() -> None:
    sample = LinkSample("send", 1000, 2, (5.0, 1.0, 2.0, 4.0, 3.0))
    assert (sample.median_seconds, sample.quartile_seconds) == (3.0, (2.0, 4.0))
    assert LinkSample("send", 1000, 2, (5.0,)).quartile_seconds == (5.0, 5.0)


def test_a_line_is_found_again() -> None:
    """50 us and 2 GB/s."""
    fit = fitted([(float(sent), 50e-6 + sent / 2e9) for sent in (4096, 16384, 65536, 2**18, 2**20, 2**22)])
    assert fit is not None
    assert fit.latency_seconds == pytest.approx(50e-6)
    assert fit.bytes_per_second == pytest.approx(2e9)
    assert fit.furthest_off < 1e-6


def test_the_middle_does_not_bend_the_line_but_is_told() -> None:
    points = [(float(sent), 50e-6 + sent / 2e9) for sent in (4096, 16384, 65536, 2**18, 2**20, 2**22)]
    points[2] = (points[2][0], 2 * points[2][1])
    fit = fitted(points)
    assert fit is not None
    assert fit.latency_seconds == pytest.approx(50e-6)
    assert fit.furthest_off == pytest.approx(0.5)


@pytest.mark.parametrize(
    "points",
    [
        [(4096.0, 1e-4)],  # one size
        [(4096.0, 1e-4), (4096.0, 1e-4)],  # twice the same
        [(4096.0, 1e-4), (8192.0, 1e-4 / 2)],  # the longer one takes less
        [(1e6, 1e-3), (2e6, 3e-3)],  # less than nothing for a call without bytes
    ],
)
def test_where_latency_and_rate_cannot_be_told_apart_there_is_no_fit(points: list[tuple[float, float]]) -> None:
    assert fitted(points) is None
