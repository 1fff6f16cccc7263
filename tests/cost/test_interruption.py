"""Runs that are interrupted: published figures, arithmetic, limits on paper, and a simulation that knows none of the formulas."""

from __future__ import annotations

from math import ceil, exp, inf, sqrt
from random import Random
from statistics import fmean

import pytest
from lives import simulated

from fullstep.cost.interruption import (
    Interrupted,
    daly_interval_seconds,
    interrupted,
    rounding_per_interruption_seconds,
    young_interval_seconds,
)
from fullstep.cost.taking import Saving, Taking

HOUR = 3600.0
RUNS = 4000


def agrees(sample: list[float], mean: float, deviation: float | None, *, slack: float = 0.0) -> None:
    """Mean and standard deviation within four standard errors."""
    middle = fmean(sample)
    second = fmean((value - middle) ** 2 for value in sample)
    fourth = fmean((value - middle) ** 4 for value in sample)
    assert middle == pytest.approx(mean, abs=4 * sqrt(second / len(sample)) + 1e-9 + slack)
    if deviation is not None:
        error = sqrt(max(0.0, fourth - second**2) / len(sample))
        assert second == pytest.approx(deviation**2, abs=4 * error + 1e-9 + 2 * deviation * slack)


# Published figures and arithmetic


@pytest.mark.parametrize(("mean_hours", "published_minutes", "minutes"), [(24, 117, 116.69), (6, 57, 56.71), (0.25, 9.1, 9.14)])
def test_intervals_that_daly_gives(mean_hours: float, published_minutes: float, minutes: float) -> None:
    """Daly 2006: a save of 5 minutes, restart of 10."""
    interval = daly_interval_seconds(300.0, mean_hours * HOUR) / 60
    assert interval == pytest.approx(published_minutes, abs=0.5) and interval == pytest.approx(minutes, abs=0.005)


def test_intervals_where_saves_are_long_or_free() -> None:
    assert daly_interval_seconds(200.0, 100.0) == daly_interval_seconds(300.0, 100.0) == 100.0
    assert daly_interval_seconds(0.0, 100.0) == young_interval_seconds(0.0, 100.0) == 0.0


@pytest.mark.parametrize(("save", "mean"), [(60.0, 4 * HOUR), (300.0, 6 * HOUR), (30.0, 72 * HOUR)])
def test_no_interval_is_much_better_than_dalys(save: float, mean: float) -> None:
    def billed(interval: float) -> float:
        return interrupted(2000 * interval, Saving(interval, save), Taking(mean, restart_seconds=600.0)).billed_seconds / interval

    best = daly_interval_seconds(save, mean)
    assert billed(best) <= min(billed(best * factor) for factor in (0.5, 0.8, 0.95, 1.05, 1.25, 2.0)) * (1 + 1e-6)


@pytest.mark.parametrize(
    ("work", "saving", "taking", "hours"),
    [
        (20.0, Saving(1.0, 0.05), Taking(4.0, restart_seconds=0.25), (25.563, 25.494, 25.486)),
        (20.0, Saving(0.5, 0.02), Taking(2.0, restart_seconds=0.5), (30.501, 30.468, 30.458)),
        (8.0, Saving(2.0, 0.1), Taking(1.5, restart_seconds=0.2), (20.946, 20.498, 20.486)),
    ],
)
def test_dalys_expected_time(work: float, saving: Saving, taking: Taking, hours: tuple[float, float, float]) -> None:
    """In hours: the closed form, which has a save at the end too; the sum without it; a simulation of 60,000 runs."""
    closed, by_segments, measured = hours
    mean, restart, segment = taking.mean_seconds, taking.restart_seconds, saving.interval_seconds + saving.save_seconds
    daly = mean * exp(restart / mean) * (exp(segment / mean) - 1) * work / saving.interval_seconds
    found = interrupted(work, saving, taking)
    assert daly == pytest.approx(closed, abs=5e-4)
    assert found.billed_seconds == pytest.approx(by_segments, abs=5e-4)
    assert found.billed_seconds == pytest.approx(measured, abs=0.015)
    assert found.interruptions == pytest.approx(found.billed_seconds / mean)
    last = mean * exp(restart / mean) * (exp(segment / mean) - exp(saving.interval_seconds / mean))
    assert found.billed_seconds == pytest.approx(daly - last)


def test_a_signal_in_time() -> None:
    """20 h of work and 19 saves of 3 min: 20.95 (e**(0.25/4) + 0.05/4)."""
    found = interrupted(20.0, Saving(1.0, 0.05), Taking(4.0, notice_seconds=0.05, restart_seconds=0.25))
    assert found.billed_seconds == pytest.approx(20.95 * (exp(0.0625) + 0.0125))
    assert found.interruptions == pytest.approx(20.95 / 4 * exp(0.0625))


def test_a_cap_alone() -> None:
    """10 h of work, hourly saves that take no time, a cap of 4.5 h, restarts of a quarter: lives of 4, 4 and 2 segments.

    The first loses half an hour, the second a quarter; two restarts.
    """
    found = interrupted(10.0, Saving(1.0, 0.0), Taking(inf, cap_seconds=4.5, restart_seconds=0.25, wait_seconds=2.0))
    assert found.lost_seconds == pytest.approx(0.5 + 0.25 + 0.25 + 0.25)
    assert found.interruptions == 2 and found.wall_seconds == pytest.approx(found.billed_seconds + 4.0)
    assert found.billed_deviation_seconds == 0.0 and found.wall_deviation_seconds == pytest.approx(sqrt(2) * 2.0)


def test_a_cap_and_a_signal() -> None:
    """Of each life of 4.5 h the last quarter is the save, and from the second on the first half hour the restart: 4.25 + 3.75 + 2 h."""
    found = interrupted(10.0, Saving(20.0, 0.25), Taking(inf, cap_seconds=4.5, notice_seconds=0.25, restart_seconds=0.5))
    assert found.interruptions == 2 and found.billed_seconds == pytest.approx(10.0 + 2 * (0.25 + 0.5))


# Limits on paper


@pytest.mark.parametrize("notice", [0.0, 60.0])
@pytest.mark.parametrize("mean", [1e12, 1e18, inf])
def test_without_interruptions_work_and_saves_remain(mean: float, notice: float) -> None:
    found = interrupted(20 * HOUR, Saving(HOUR, 60.0), Taking(mean, None, notice, 600.0, 1800.0))
    assert found.billed_seconds == pytest.approx(20 * HOUR + 19 * 60, abs=0.01) and found.saving_seconds == 19 * 60
    assert found.wall_seconds == pytest.approx(found.billed_seconds, abs=0.01)


def test_rare_interruptions_lose_no_digits() -> None:
    """To first order in 1/M: T/M interruptions, each with a restart and half a segment; squares in the same way."""
    mean, length, restart = 1e15, 3600.0, 600.0
    found = interrupted(length, Saving(inf, 1.0), Taking(mean, restart_seconds=restart))
    assert found.lost_seconds == pytest.approx(length / mean * (restart + length / 2), rel=1e-9)
    square = length / mean * (restart**2 + restart * length + length**2 / 3)
    assert found.billed_deviation_seconds == pytest.approx(sqrt(square), rel=1e-9)


def test_a_first_attempt_without_restarts_is_the_textbook_one() -> None:
    """Work without saves or restarts: the wait for a gap of length s; mean M (e**x - 1), variance M**2 (e**2x - 2x e**x - 1)."""
    for x in (1e-3, 0.3, 1.9, 2.1, 5.0):
        found = interrupted(x * 7.0, Saving(inf, 0.0), Taking(7.0))
        assert found.billed_seconds == pytest.approx(7.0 * (exp(x) - 1))
        assert found.billed_deviation_seconds == pytest.approx(7.0 * sqrt(exp(2 * x) - 2 * x * exp(x) - 1), rel=1e-6)


def test_waits_move_the_wall_clock_only() -> None:
    saving, taking = Saving(HOUR, 60.0), Taking(4 * HOUR, None, 0.0, 600.0, 0.0)
    without, waiting = interrupted(20 * HOUR, saving, taking), interrupted(20 * HOUR, saving, taking._replace(wait_seconds=1800.0))
    assert without.wall_seconds == without.billed_seconds and without.wall_deviation_seconds == without.billed_deviation_seconds
    assert waiting.wall_seconds == pytest.approx(without.billed_seconds + 1800.0 * without.interruptions)
    assert waiting[:3] == without[:3] and waiting.wall_deviation_seconds > without.wall_deviation_seconds


def test_no_work_takes_no_time() -> None:
    assert interrupted(0.0, Saving(1.0, 1.0), Taking(1.0, 0.5, 0.0, 9.0, 9.0)) == Interrupted(*(0.0,) * 7)


def test_many_segments_beyond_the_recursion(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rate of a long run goes on where the recursion ends."""
    case = (3000.0, Saving(1.0, 0.05), Taking(30.0, 12.0, 0.0, 0.25, 1.0))
    exact = interrupted(*case)
    monkeypatch.setattr("fullstep.cost.capped._EXACT_SEGMENTS", 300)
    assert interrupted(*case) == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize(
    ("work", "saving", "taking"),
    [
        (20.0, Saving(1.0, 0.05), Taking(0.01, restart_seconds=0.25)),
        (20.0, Saving(1.0, 0.05), Taking(1e-9, restart_seconds=0.25)),
        (20.0, Saving(100.0, 0.05), Taking(1.0, restart_seconds=0.25)),
        (20.0, Saving(1.0, 0.05), Taking(1e-9, None, 1.0, 0.25)),
        (20.0, Saving(1.0, 0.05), Taking(4.0, 1.3, 0.0, 0.25)),
        (20.0, Saving(1.0, 0.05), Taking(4.0, 0.2, 0.0, 0.25)),
        (20.0, Saving(1.0, 0.05), Taking(4.0, 0.3, 1.0, 0.25)),
        (20.0, Saving(1.0, 0.05), Taking(inf, 0.3, 1.0, 0.25)),
        (20.0, Saving(1.0, 0.05), Taking(1e-9, 1.4, 0.0, 0.25)),
    ],
)
def test_a_run_that_never_ends(work: float, saving: Saving, taking: Taking) -> None:
    found = interrupted(work, saving, taking)
    assert found == Interrupted(*(inf,) * 7) and not found.ends


@pytest.mark.parametrize(
    ("work", "saving", "taking"),
    [
        (-1.0, Saving(1.0, 0.0), Taking(1.0)),
        (inf, Saving(1.0, 0.0), Taking(1.0)),
        (1.0, Saving(0.0, 0.0), Taking(1.0)),
        (1.0, Saving(1.0, -1.0), Taking(1.0)),
        (1.0, Saving(1.0, 0.0), Taking(0.0)),
        (1.0, Saving(1.0, 0.0), Taking(float("nan"))),
        (1.0, Saving(1.0, 0.0), Taking(1.0, 0.0)),
        (1.0, Saving(1.0, 0.0), Taking(1.0, restart_seconds=-1.0)),
        (1.0, Saving(1.0, 0.0), Taking(1.0, wait_seconds=inf)),
    ],
)
def test_what_has_no_meaning_is_refused(work: float, saving: Saving, taking: Taking) -> None:
    with pytest.raises(ValueError, match="allowed"):
        interrupted(work, saving, taking)


# Simulation


@pytest.mark.parametrize(
    ("work", "saving", "taking"),
    [
        pytest.param(20.0, Saving(1.0, 0.05), Taking(4.0, None, 0.0, 0.25, 0.5), id="plain"),
        pytest.param(7.3, Saving(2.0, 0.1), Taking(1.5, None, 0.0, 0.2, 2.0), id="plain, often"),
        pytest.param(7.3, Saving(2.0, 0.1), Taking(1.5, None, 0.05, 0.2, 2.0), id="notice too short"),
        pytest.param(5.0, Saving(9.0, 0.1), Taking(40.0, None, 0.0, 0.2, 2.0), id="rarely, without a save"),
        pytest.param(20.0, Saving(1.0, 0.05), Taking(4.0, 5.3, 0.0, 0.25, 0.5), id="cap"),
        pytest.param(20.3, Saving(1.0, 0.05), Taking(40.0, 1.35, 0.0, 0.25, 0.5), id="cap of one segment"),
        pytest.param(60.3, Saving(0.5, 0.05), Taking(200.0, 24.0, 0.0, 0.25, 0.5), id="cap of a day"),
        pytest.param(3.0, Saving(5.0, 0.05), Taking(4.0, 3.5, 0.0, 0.25, 0.5), id="cap, one segment"),
        pytest.param(20.0, Saving(1.0, 0.05), Taking(4.0, 30.0, 0.0, 0.25, 0.5), id="cap beyond the run"),
    ],
)
def test_simulated_runs(work: float, saving: Saving, taking: Taking) -> None:
    random, found = Random(20), interrupted(work, saving, taking)
    billed, wall, stops = (list(column) for column in zip(*(simulated(work, saving, taking, random) for _ in range(RUNS)), strict=True))
    agrees(billed, found.billed_seconds, found.billed_deviation_seconds)
    agrees(wall, found.wall_seconds, found.wall_deviation_seconds)
    agrees(stops, found.interruptions, None)


@pytest.mark.parametrize(
    "taking",
    [
        pytest.param(Taking(4.0, None, 0.05, 0.25, 0.5), id="notice"),
        pytest.param(Taking(1.0, None, 0.05, 0.25, 0.0), id="notice, often"),
        pytest.param(Taking(6.0, 5.3, 0.05, 0.25, 0.5), id="notice and cap"),
        pytest.param(Taking(2.0, 1.5, 0.05, 0.25, 0.5), id="notice and a short cap"),
        pytest.param(Taking(100.0, 6.0, 0.05, 0.25, 0.5), id="notice, most stops by the cap"),
    ],
)
@pytest.mark.parametrize("interval", [50.0, 1.0])
def test_simulated_signals(taking: Taking, interval: float) -> None:
    """Exact without periodic saves. With them the simulation lets one that a signal meets end first, which adds a part of it to some."""
    saving, random = Saving(interval, 0.01), Random(21)
    found = interrupted(20.0, saving, taking)
    billed, wall, stops = (list(column) for column in zip(*(simulated(20.0, saving, taking, random) for _ in range(RUNS)), strict=True))
    slack = found.interruptions * saving.save_seconds**2 / interval if interval < 20.0 else 0.0
    agrees(billed, found.billed_seconds, found.billed_deviation_seconds, slack=slack)
    agrees(wall, found.wall_seconds, found.wall_deviation_seconds, slack=slack)
    agrees(stops, found.interruptions, None, slack=slack)


def test_steps_of_simulated_lives() -> None:
    random = Random(22)
    agrees([float(ceil(random.expovariate(1 / 2.5))) for _ in range(20000)], 2.5 + rounding_per_interruption_seconds(2.5, 1.0), None)


def test_steps_of_lives_without_end() -> None:
    assert rounding_per_interruption_seconds(inf, HOUR) == HOUR / 2


@pytest.mark.parametrize(
    ("saving", "taking"),
    [
        (Saving(60.0, 5.0), Taking(6 * HOUR, cap_seconds=1e4 * HOUR, restart_seconds=600.0)),
        (Saving(0.6, 0.0), Taking(6 * HOUR, cap_seconds=24 * HOUR, restart_seconds=600.0)),
        (Saving(1800.0, 30.0), Taking(1e5 * HOUR, cap_seconds=0.2 * HOUR, notice_seconds=120.0, restart_seconds=680.0)),
    ],
)
def test_very_many_segments_or_stops_are_no_more_work(saving: Saving, taking: Taking) -> None:
    """Against arithmetic of a run without end: a life makes its progress less the restart, and a stop costs the restart."""
    work = 1000 * HOUR
    found = interrupted(work, saving, taking)
    mean, restart = taking.mean_seconds, taking.restart_seconds
    if taking.notice_seconds:  # certain stops: 0.2 h less restart and save of progress each, and a save in each half hour of it
        assert found.billed_seconds == pytest.approx(work * 1830 / 1800 * 720 / (720 - 680 - 30), rel=0.001)
    elif taking.cap_seconds == 24 * HOUR:  # a life is min(Exp(6 h), 24 h) on average, of which a restart is lost
        life = mean * (1 - exp(-24 * HOUR / mean))
        progress = exp(-restart / mean) * mean * (1 - exp(-(24 * HOUR - restart) / mean))
        assert found.billed_seconds == pytest.approx(work * life / progress, rel=0.005)
    else:
        assert found.billed_seconds == interrupted(work, saving, taking._replace(cap_seconds=None)).billed_seconds
