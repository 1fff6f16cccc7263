"""What holds for any run that is interrupted."""

from __future__ import annotations

from math import expm1, isclose

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fullstep.cost.interruption import interrupted, rounding_per_interruption_seconds
from fullstep.cost.taking import Saving, Taking, segments_of, workable_seconds

works = st.floats(0.1, 200.0)
savings = st.builds(Saving, st.floats(0.1, 8.0), st.floats(0.0, 0.2), st.just(0.0))
takings = st.builds(Taking, st.floats(0.5, 1e5), st.none(), st.just(0.0), st.floats(0.0, 1.0), st.floats(0.0, 3.0))
few = settings(max_examples=150, deadline=None)


@few
@given(works, savings, takings)
def test_parts_add_up(work: float, saving: Saving, taking: Taking) -> None:
    found = interrupted(work, saving, taking)
    assert found.billed_seconds >= work and found.wall_seconds >= found.billed_seconds
    if found.ends:
        assert isclose(work + found.saving_seconds + found.lost_seconds, found.billed_seconds)
        assert isclose(found.interruptions, found.billed_seconds / taking.mean_seconds, rel_tol=1e-9)


@few
@given(works, savings, takings, st.floats(1.0, 100.0), st.sampled_from([0.0, 0.3]))
def test_longer_lives_never_cost_more(work: float, saving: Saving, taking: Taking, factor: float, notice: float) -> None:
    means = (taking.mean_seconds, taking.mean_seconds * factor)
    short, long = (interrupted(work, saving, taking._replace(mean_seconds=mean, notice_seconds=notice)) for mean in means)
    assert long.billed_seconds <= short.billed_seconds * (1 + 1e-9) and long.interruptions <= short.interruptions * (1 + 1e-9)


@few
@given(works, st.builds(Saving, st.floats(0.1, 8.0), st.floats(0.001, 0.2), st.just(0.0)), takings, st.floats(0.0, 0.99))
def test_a_notice_too_short_gains_nothing(work: float, saving: Saving, taking: Taking, share: float) -> None:
    with_notice = taking._replace(notice_seconds=saving.save_seconds * share)
    assert interrupted(work, saving, with_notice) == interrupted(work, saving, taking)


@few
@given(works, savings, takings)
def test_a_notice_long_enough_never_costs_more(work: float, saving: Saving, taking: Taking) -> None:
    """Where an interval is 1.5 saves at least and the work 2: saving what took less to make than to save would not pay."""
    interval, save = saving.interval_seconds, saving.save_seconds
    if interval < 1.5 * save or work < 2 * save:
        return
    with_notice = interrupted(work, saving, taking._replace(notice_seconds=save))
    assert with_notice.billed_seconds <= interrupted(work, saving, taking).billed_seconds * (1 + 1e-9)


@few
@given(works, savings, takings, st.floats(0.2, 100.0))
def test_a_cap_never_helps(work: float, saving: Saving, taking: Taking, cap: float) -> None:
    capped, free = (interrupted(work, saving, taking._replace(cap_seconds=one)) for one in (cap, None))
    assert capped.billed_seconds >= free.billed_seconds * (1 - 1e-9)
    assert capped.interruptions >= free.interruptions * (1 - 1e-9)


@few
@given(works, savings, takings)
def test_a_cap_far_away_changes_nothing(work: float, saving: Saving, taking: Taking) -> None:
    capped, free = (interrupted(work, saving, taking._replace(mean_seconds=5.0, cap_seconds=one)) for one in (5000.0, None))
    assert capped == pytest.approx(free, rel=1e-6)


@few
@given(works, savings)
def test_work_that_fits_a_limit(work: float, saving: Saving) -> None:
    assert workable_seconds(segments_of(work, saving).seconds, saving) == pytest.approx(work)


@few
@given(st.floats(1.0, 1e9), st.floats(0.01, 1e5))
def test_started_steps(mean: float, step: float) -> None:
    added = rounding_per_interruption_seconds(mean, step)
    assert 0.5 * step * (1 - 1e-9) <= added <= step
    assert step / -expm1(-step / mean) == pytest.approx(mean + added, rel=1e-9)
