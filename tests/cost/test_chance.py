"""How likely a run keeps to a limit: quantiles, arithmetic, limits on paper, and simulated delays."""

from __future__ import annotations

from itertools import pairwise
from math import exp, inf, sqrt
from random import Random
from statistics import NormalDist
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lives import simulated

from fullstep.cost.chance import chance_within, gamma_chance, quantiles, two_piece_chance, undisturbed_chance
from fullstep.cost.interruption import Saving, Taking, interrupted
from fullstep.quantities import Bounds

RUNS = 4000
SAVING = Saving(1.0, 0.05)
few = settings(max_examples=60, deadline=None)


def bounds_of(likely: float, below: float, above: float) -> Bounds:
    return Bounds(likely / below, likely, likely * above)


bounds = st.builds(bounds_of, st.floats(0.5, 60.0), st.floats(1.0, 3.0), st.floats(1.0, 3.0))
takings = st.builds(
    Taking,
    st.floats(0.05, 1e4),
    st.one_of(st.none(), st.floats(0.1, 50.0)),
    st.sampled_from([0.0, 0.1]),
    st.floats(0.0, 1.0),
    st.floats(0.0, 3.0),
)
clocks = st.sampled_from(["wall", "billed"])
Clock = Literal["wall", "billed"]


# The uncertain quantity


@pytest.mark.parametrize("around", [Bounds(5, 10, 40), Bounds(9, 10, 10.5), Bounds(1, 2, 4)])
def test_bounds_are_its_quantiles(around: Bounds) -> None:
    assert [two_piece_chance(end, around) for end in around] == pytest.approx([0.05, 0.5, 0.95])


def test_even_bounds_are_one_lognormal() -> None:
    normal, sigma = NormalDist(), 1.0 / 1.6448536269514722
    for power in (-2.0, -0.3, 0.7, 3.0):
        assert two_piece_chance(10 * 2**power, Bounds(5, 10, 20)) == pytest.approx(normal.cdf(power / sigma))


def test_what_is_certain_goes_in_one_step() -> None:
    assert [two_piece_chance(limit, Bounds.exact(3.0)) for limit in (2.999, 3.0, 3.001)] == [0.0, 1.0, 1.0]
    assert quantiles(Bounds.exact(3.0), 2) == [3.0, 3.0]
    assert two_piece_chance(0.0, Bounds.exact(0.0)) == 1.0


def test_certain_on_one_side() -> None:
    assert [two_piece_chance(limit, Bounds(3, 3, 6)) for limit in (2.9, 3, 6)] == pytest.approx([0.0, 0.5, 0.95])
    assert [two_piece_chance(limit, Bounds(1, 3, 3)) for limit in (1, 2.999999, 3)] == pytest.approx([0.05, 0.5, 1.0], abs=1e-5)


@pytest.mark.parametrize("wrong", [Bounds(0, 1, 2), Bounds(2, 1, 3), Bounds(-1, -1, -1), Bounds(1, 3, 2)])
def test_bounds_that_hold_nothing_positive_are_refused(wrong: Bounds) -> None:
    with pytest.raises(ValueError, match="bounds"):
        two_piece_chance(1.0, wrong)


@few
@given(st.builds(bounds_of, st.floats(0.5, 60.0), st.floats(1.01, 3.0), st.floats(1.01, 3.0)), st.integers(1, 50))
def test_quantiles_are_the_inverse(around: Bounds, count: int) -> None:
    values = quantiles(around, count)
    assert values == sorted(values)
    assert [two_piece_chance(value, around) for value in values] == pytest.approx([(cell + 0.5) / count for cell in range(count)], abs=1e-9)


@pytest.mark.parametrize("shape", [1, 2, 5, 50])
def test_gamma_of_whole_shape(shape: int) -> None:
    """Its sum: P = 1 - e**(-x) (1 + x + ... + x**(k-1) / (k-1)!)."""
    for x in (0.1 * shape, 0.7 * shape, shape, 1.5 * shape, 3.0 * shape):
        term = total = 1.0
        for order in range(1, shape):
            term *= x / order
            total += term
        assert gamma_chance(x, shape, shape) == pytest.approx(1.0 - exp(-x) * total, abs=0.01)


def test_gamma_without_variance() -> None:
    assert [gamma_chance(limit, 2.0, 0.0) for limit in (0.0, 1.9, 2.0, 2.1)] == [0.0, 0.0, 1.0, 1.0]


# The run


def test_machines_that_stay_leave_the_work_alone() -> None:
    """20 h of work need 19 saves of 0.05 h."""
    around = Bounds(15.0, 20.0, 30.0)
    assert chance_within(20.951, around, SAVING) == pytest.approx(0.5, abs=1e-3)
    for limit in (14.0, 20.95, 25.0, 40.0):
        stays = chance_within(limit, around, SAVING)
        for taking in (Taking(inf), Taking(1e15, None, 0.0, 0.25, 2.0), Taking(1e15, None, 0.1, 0.25), Taking(1e15, 1e9, 0.0, 0.25)):
            assert chance_within(limit, around, SAVING, taking) == pytest.approx(stays, abs=1e-9)


def test_nothing_is_due_at_the_end_of_certain_work() -> None:
    assert chance_within(20.94, Bounds.exact(20.0), SAVING) == 0.0
    assert chance_within(20.96, Bounds.exact(20.0), SAVING) == 1.0


def test_just_enough_time_is_the_chance_of_no_interruption() -> None:
    found = chance_within(20.951, Bounds.exact(20.0), SAVING, Taking(30.0, None, 0.0, 0.25, 0.5))
    assert found == pytest.approx(exp(-20.95 / 30.0), abs=1e-3)


def test_no_run_beyond_a_cap_is_spared() -> None:
    taking = Taking(30.0, 10.0, 0.0, 0.25, 0.5)
    assert undisturbed_chance(9.9, SAVING, taking) == exp(-9.9 / 30.0) and undisturbed_chance(10.0, SAVING, taking) == 0.0
    assert undisturbed_chance(9.96, SAVING, taking._replace(notice_seconds=0.05)) == 0.0
    assert chance_within(20.951, Bounds.exact(20.0), SAVING, taking) < 1e-3


def test_no_work_is_in_time() -> None:
    assert chance_within(0.0, Bounds.exact(0.0), SAVING, Taking(1.0, None, 0.0, 0.25, 0.5)) == 1.0


def test_a_run_that_never_ends_is_late_unless_it_is_spared() -> None:
    never = Taking(1.0, None, 0.0, 20.0, 0.5)
    assert not interrupted(1.0, SAVING, never).ends
    assert chance_within(1e9, Bounds.exact(1.0), SAVING, never) == pytest.approx(exp(-1.0))
    assert chance_within(1e9, Bounds.exact(20.0), SAVING, Taking(4.0, 1.2, 0.0, 0.25)) == 0.0


@pytest.mark.parametrize("clock", ["wall", "billed"])
@pytest.mark.parametrize(
    "taking",
    [
        pytest.param(Taking(4.0, None, 0.0, 0.25, 0.5), id="often"),
        pytest.param(Taking(24.0, None, 0.0, 0.25, 2.0), id="rarely"),
        pytest.param(Taking(24.0, 24.0, 0.0, 0.25, 2.0), id="cap"),
        pytest.param(Taking(6.0, 7.0, 0.0, 0.25, 1.0), id="short cap"),
    ],
)
@pytest.mark.parametrize("around", [Bounds.exact(20.0), Bounds(15.0, 20.0, 30.0)])
def test_simulated_chances(around: Bounds, taking: Taking, clock: Clock) -> None:
    """Within the error that the docstring states, and four standard errors of the simulation."""
    random = Random(5)
    place = ("billed", "wall").index(clock)
    compare([simulated(drawn(around, random), SAVING, taking, random)[place] for _ in range(RUNS)], around, taking, clock)


@pytest.mark.parametrize(
    "taking",
    [
        pytest.param(Taking(4.0, None, 0.1, 0.25, 0.5), id="often"),
        pytest.param(Taking(24.0, None, 0.1, 0.25, 2.0), id="rarely"),
        pytest.param(Taking(24.0, 9.0, 0.1, 0.25, 1.0), id="cap"),
    ],
)
@pytest.mark.parametrize("around", [Bounds.exact(20.0), Bounds(15.0, 20.0, 30.0)])
def test_simulated_chances_with_a_notice(around: Bounds, taking: Taking) -> None:
    random = Random(6)
    compare([simulated(drawn(around, random), SAVING, taking, random)[1] for _ in range(RUNS)], around, taking, "wall")


def compare(sample: list[float], around: Bounds, taking: Taking, clock: Clock) -> None:
    ends = sorted(sample)
    for share in (0.1, 0.25, 0.5, 0.75, 0.9, 0.97):
        limit = ends[int(share * RUNS)] + 1e-9
        measured = sum(end <= limit for end in ends) / RUNS
        assert chance_within(limit, around, SAVING, taking, clock=clock) == pytest.approx(measured, abs=0.05 + 4 * sqrt(0.25 / RUNS))


def drawn(around: Bounds, random: Random) -> float:
    """A value of the two-piece lognormal."""
    place = random.gauss(0.0, 1.0) / 1.6448536269514722
    return around.likely * (around.likely / around.low if place < 0.0 else around.high / around.likely) ** place


@few
@given(bounds, takings, clocks, st.lists(st.floats(0.0, 500.0), min_size=2, max_size=6))
def test_more_time_is_never_a_smaller_chance(around: Bounds, taking: Taking, clock: Clock, limits: list[float]) -> None:
    chances = [chance_within(limit, around, SAVING, taking, clock=clock) for limit in sorted(limits)]
    assert all(0.0 <= chance <= 1.0 for chance in chances)
    assert all(early <= late + 1e-12 for early, late in pairwise(chances))


@few
@given(bounds, takings, st.floats(0.0, 500.0))
def test_what_is_billed_ends_no_later_than_the_wall_clock(around: Bounds, taking: Taking, limit: float) -> None:
    """To the accuracy of the gamma variable."""
    wall, billed = (chance_within(limit, around, SAVING, taking, clock=clock) for clock in ("wall", "billed"))
    assert billed >= wall - 0.1


@pytest.mark.parametrize("clock", ["wall", "billed"])
@pytest.mark.parametrize("taking", [Taking(4.0, None, 0, 0.25, 0.5), Taking(24.0, 24.0, 0, 0.25, 2.0), Taking(8.0, None, 0.1, 0.25, 1.0)])
@pytest.mark.parametrize("around", [Bounds(18.0, 20.0, 22.0), Bounds(15.0, 20.0, 30.0)])
def test_a_few_values_of_the_work_stand_for_all(around: Bounds, taking: Taking, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [20.0, 21.0, 23.0, 27.0, 35.0, 60.0]
    few = [chance_within(limit, around, SAVING, taking, clock=clock) for limit in limits]
    monkeypatch.setattr("fullstep.cost.chance._CELLS", 400)
    assert few == pytest.approx([chance_within(limit, around, SAVING, taking, clock=clock) for limit in limits], abs=0.015)
