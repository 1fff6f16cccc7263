"""Deadlines, servers and the network between them, in hours that can be redone in the head: see clock_by_hand.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fullstep.job import Job, Worksheet
from fullstep.ledger import Answer
from fullstep.plan.ranking import TIE, rule
from fullstep.plan.search import Plan, plan
from fullstep.plan.timer import step_seconds

from .by_hand import by_hand
from .clock_by_hand import clock_by_hand, timing_of

Sheet = Callable[..., Worksheet]
DATA = {"steps": 3600}


def planned(sheet: Sheet, *, state_gib: float = 80, speed: dict[str, float] | None = None, **sections: Any) -> Plan:
    """8 GPUs a node, 32 rows a step, 3,600 steps."""
    sections = {"batch": {"global_rows": 32}, "data": DATA, **sections}
    return plan(sheet(**sections), by_hand(state_gib), clock_by_hand(speed))


def nodes_of(found: Plan) -> set[int]:
    return {trial.job.machine.nodes for trial in found.options}


def test_one_server_that_ends_in_time(sheet: Sheet) -> None:
    """100 h, 110 at most, of 120."""
    found = planned(sheet, goal={"finish_within_hours": 120, "max_nodes": 4}, machine={"network_gbit_s": 1000})
    assert found.verdict.answer == "one_server_sharded"
    assert found.verdict.sentence.endswith("; the run takes 100.0 h (90.0-110.0), the deadline is 120 h.")
    assert "the run takes 100.0 h" in found.verdict.reason and "GiB" in found.verdict.reason
    assert found.verdict.decide_by is None
    assert nodes_of(found) == {1}


def test_time_that_demands_two_servers(sheet: Sheet) -> None:
    """50 h of work and 1 of communication of 60."""
    found = planned(sheet, goal={"finish_within_hours": 60, "max_nodes": 4}, machine={"network_gbit_s": 1000})
    verdict = found.verdict
    assert verdict.answer == "several_servers"
    assert verdict.sentence.startswith("Several servers are needed for the time (one server would take 100.0 h): 2 nodes of 8 x H100-SXM")
    assert "the run takes 51.0 h (45.9-56.1), the deadline is 60 h" in verdict.sentence
    assert "The network of 1,000 Gbit/s per server is enough: 2 % of the step waits for it." in verdict.sentence
    assert verdict.reason.startswith("on one server the run takes 100.0 h (90.0-110.0), the deadline is 60 h")
    assert nodes_of(found) == {2}


def test_what_ends_too_late_is_a_record_in_hours(sheet: Sheet) -> None:
    found = planned(sheet, goal={"finish_within_hours": 60, "max_nodes": 2}, machine={"network_gbit_s": 1000})
    late = [out for out in found.rejected if out.limit == "time"]
    assert late and all((out.available, out.unit, out.changes_training) == (60, "hours", False) for out in late)
    assert late[0].needed == pytest.approx(100)
    assert [out.needed for out in late] == sorted(out.needed or 0 for out in late)
    assert late[0].remedy is not None and late[0].remedy["machine.nodes"] == 2
    assert all(trial.job.machine.nodes == 1 for trial in found.aside.trials)


def test_a_network_on_which_two_servers_are_slower_than_one(sheet: Sheet) -> None:
    """50 + 100 h at 10 Gbit/s; at 25 Gbit/s 50 + 40, faster than one server; at 100 50 + 10, in time."""
    found = planned(sheet, goal={"finish_within_hours": 60, "max_nodes": 2}, machine={"network_gbit_s": 10})
    assert found.verdict.answer == "nothing_fits" and not found.options
    assert found.verdict.sentence.startswith("Nothing ends in time on up to 2 servers: closest comes 8 x H100-SXM, ")
    assert "the run takes 100.0 h (90.0-110.0), the deadline is 60 h" in found.verdict.sentence
    assert found.verdict.sentence.endswith("with 100 Gbit/s per server, not 10, 2 servers would take 60.0 h (54.0-66.0).")
    assert found.shown.job.machine.nodes == 1
    out = next(out for out in found.rejected if out.limit == "network")
    assert (out.what, out.needed, out.available, out.unit) == ("2 nodes", 25, 10, "Gbit/s")
    assert out.remedy == {"machine.network_gbit_s": 25}
    assert "150 s at best, 100 s on 1 node" in out.detail


def test_two_servers_that_the_network_makes_useless_are_no_options_either(sheet: Sheet) -> None:
    """The worksheet offers them, without a deadline."""
    found = planned(sheet, machine={"nodes": 2, "network_gbit_s": 10})
    assert found.verdict.answer == "one_server_sharded"
    assert nodes_of(found) == {1}
    assert "network" in {out.limit for out in found.rejected}
    assert nodes_of(planned(sheet, machine={"nodes": 2, "network_gbit_s": 1000})) == {1, 2}


def test_the_scaling_table(sheet: Sheet) -> None:
    """100, 50 + 10, 25 + 10 s at 100 Gbit/s: efficiency 100 / 120, 100 / 140."""
    found = planned(sheet, goal={"max_nodes": 4}, machine={"network_gbit_s": 100})
    assert found.verdict.answer == "one_server_sharded" and nodes_of(found) == {1}
    assert [(row.nodes, row.step.likely if row.step else None) for row in found.scaling] == [(1, 100), (2, 60), (4, 35)]
    assert [row.efficiency for row in found.scaling] == pytest.approx([1, 100 / 120, 100 / 140])
    assert [row.slower_than for row in found.scaling] == [None] * 3
    assert [row.run.likely / 3600 if row.run else None for row in found.scaling] == pytest.approx([100, 60, 35])
    for row in found.scaling:
        assert row.trial is not None
        batch = row.trial.job.batch
        assert batch.micro_batch * batch.accumulation * row.trial.job.layout.data_parallel == 32


def test_servers_in_vain_stand_in_the_table(sheet: Sheet) -> None:
    """100, 150, 125 s at 10 Gbit/s; efficiency 100 / 300, 100 / 500."""
    found = planned(sheet, goal={"max_nodes": 4}, machine={"network_gbit_s": 10})
    assert [row.slower_than for row in found.scaling] == [None, 1, 1]
    assert [row.efficiency for row in found.scaling] == pytest.approx([1, 1 / 3, 1 / 5])


def test_a_table_where_one_server_is_too_small_and_rows_run_out(sheet: Sheet) -> None:
    """1,000 GiB of state need two nodes; 32 rows cannot be divided over 64 GPUs. Two nodes are the measure of four."""
    fixed = {"fixed": ["layout.offload_parameters", "layout.offload_optimizer"]}
    found = planned(sheet, state_gib=1000, goal={"max_nodes": 8}, machine={"network_gbit_s": 1000}, plan=fixed)
    assert found.verdict.sentence.startswith("Several servers are needed for the memory: 2 nodes")
    assert [row.trial is None for row in found.scaling] == [True, False, False, True]
    assert found.scaling[0].why == "nothing fits"
    assert "cannot be divided over 64 ranks" in found.scaling[3].why
    assert found.scaling[1].efficiency == 1
    assert found.scaling[2].step is not None and found.scaling[1].step is not None
    assert found.scaling[2].efficiency == pytest.approx(found.scaling[1].step.likely / (2 * found.scaling[2].step.likely))


def test_as_many_nodes_as_are_fixed(sheet: Sheet) -> None:
    """Two of them take 150 h at 10 Gbit/s; that one would take 100 is no option, and no reason against two."""
    machine = {"nodes": 2, "network_gbit_s": 10}
    found = planned(sheet, machine=machine, plan={"fixed": ["machine.nodes"]})
    assert nodes_of(found) == {2} and found.scaling == []
    assert found.verdict.answer == "several_servers" and "memory" not in found.verdict.sentence
    assert found.verdict.reason.startswith("machine.nodes is fixed; ")
    assert {out.limit for out in found.rejected} <= {"memory", "divisibility"}


def test_a_hundred_thousand_servers(sheet: Sheet) -> None:
    """Those whose rows can be divided are searched, and the search ends."""
    found = planned(sheet, batch={"global_rows": 256}, goal={"max_nodes": 100_000}, machine={"network_gbit_s": 1000})
    assert [row.nodes for row in found.scaling if row.trial is not None] == [1, 2, 4, 8, 16, 32]
    assert found.scaling[-1].nodes == 100_000
    assert found.spent < 1000


def test_one_server_has_no_table(sheet: Sheet) -> None:
    assert planned(sheet).scaling == []


def test_a_network_that_is_not_stated_is_a_condition(sheet: Sheet) -> None:
    """At 180 Gbit/s, which keep communication under a tenth, two servers take 50 + 5.6 h of 60: said as a condition, not as their time."""
    found = planned(sheet, goal={"finish_within_hours": 60, "max_nodes": 4})
    verdict = found.verdict
    assert verdict.answer == "several_servers" and nodes_of(found) == {2}
    assert "the run takes 55.6 h (50.0-61.1) on a network of 180 Gbit/s per server, the deadline is 60 h" in verdict.sentence
    assert verdict.decide_by is not None and "machine.network_gbit_s" in verdict.decide_by
    assert all(step_seconds(trial) is None for trial in found.options)
    assert found.scaling[1].step is None and found.scaling[1].why == "the network is not stated"
    assert "machine.network_gbit_s" in {missing.key for missing in found.missing}


def test_as_many_servers_as_the_time_demands_on_the_network_that_they_need(sheet: Sheet) -> None:
    """Two take 55.6 h at 180 Gbit/s, of 40; four 25 + 2.8 at 360."""
    found = planned(sheet, goal={"finish_within_hours": 40, "max_nodes": 4})
    assert nodes_of(found) == {4}
    assert "the run takes 27.8 h (25.0-30.6) on a network of 360 Gbit/s per server" in found.verdict.sentence
    late = {out.what: out.needed for out in found.rejected if out.limit == "time" and out.what.endswith("2 nodes")}
    assert late and min(hours or 0 for hours in late.values()) == pytest.approx(55.6, abs=0.1)


def test_a_deadline_within_the_bounds(sheet: Sheet) -> None:
    """100 h, 90 to 110: likely in time of 105, likely not of 95, and 95 s a step would do."""
    likely = planned(sheet, goal={"finish_within_hours": 105})
    assert likely.verdict.answer == "one_server_sharded"
    assert likely.verdict.decide_by is not None and "up to 105 s a step the run ends within 105 h" in likely.verdict.decide_by
    unlikely = planned(sheet, goal={"finish_within_hours": 95})
    assert unlikely.verdict.answer == "undecided"
    assert unlikely.verdict.decide_by is not None and "up to 95 s a step" in unlikely.verdict.decide_by
    assert unlikely.options and all(trial.may_be_late for trial in unlikely.options)


def test_two_servers_although_one_may_do(sheet: Sheet) -> None:
    """One is likely 5 h late: what would show that it is not is said."""
    found = planned(sheet, goal={"finish_within_hours": 95, "max_nodes": 2}, machine={"network_gbit_s": 1000})
    assert found.verdict.answer == "several_servers" and found.options[0].job.machine.nodes == 2
    assert found.verdict.decide_by is not None
    assert found.verdict.decide_by.startswith("run a few steps of 8 x H100-SXM, ") and "up to 95 s a step" in found.verdict.decide_by


def test_how_many_servers_at_least(sheet: Sheet) -> None:
    """100 h of 30, and only one is allowed."""
    found = planned(sheet, goal={"finish_within_hours": 30})
    assert found.verdict.answer == "nothing_fits"
    assert found.verdict.sentence.endswith("; at least 4 servers would be needed.")


def test_a_deadline_without_data_stays_open(sheet: Sheet) -> None:
    found = planned(sheet, goal={"finish_within_hours": 60, "max_nodes": 2}, data={}, machine={"network_gbit_s": 1000})
    assert found.verdict.answer == "one_server_sharded"
    assert found.verdict.sentence.endswith("; whether the run ends within 60 h is open: no data set is stated.")
    assert found.verdict.decide_by is not None and "data.tokens" in found.verdict.decide_by
    assert any("deadline" in missing.why for missing in found.missing)


def test_memory_comes_before_time(sheet: Sheet) -> None:
    """1,000 of state are 62.5 on each of 16, with full recomputation: two for the memory, and 67 + 1 h of 100 are in time."""
    fixed = {"fixed": ["layout.offload_parameters", "layout.offload_optimizer"]}
    goal = {"finish_within_hours": 100, "max_nodes": 4}
    found = planned(sheet, state_gib=1000, goal=goal, machine={"network_gbit_s": 1000}, plan=fixed)
    assert found.verdict.sentence.startswith("Several servers are needed for the memory: 2 nodes")
    assert "the deadline is 100 h" in found.verdict.sentence


def test_the_fastest_comes_first(sheet: Sheet) -> None:
    found = planned(sheet, speed={"zero3": 1.2})
    assert found.options[0].job.layout.strategy == "zero3"
    assert found.options[0].job.step.activation_checkpointing == "none"
    assert "likely time per token; within 10 % of it: " in rule(found.options)


def test_of_nearly_equal_ones_the_rule_chooses(sheet: Sheet) -> None:
    """8 % are less than the formulas can tell apart."""
    assert TIE == 0.10
    untimed = plan(sheet(batch={"global_rows": 32}), by_hand())
    timed = planned(sheet, speed={"zero3": 1.08}, data={})
    assert timed.options[0].changes == untimed.options[0].changes
    assert timed.options[0].job.layout.strategy != "zero3"


def test_what_is_slower_by_more_than_a_tie_is_never_before(sheet: Sheet) -> None:
    times = [seconds.likely for trial in planned(sheet).options if trial.fits and (seconds := step_seconds(trial))]
    assert len(times) > 3
    assert all(earlier <= later * (1 + TIE) for place, earlier in enumerate(times) for later in times[place:])


def test_a_pilot_is_compared_by_the_formulas(sheet: Sheet) -> None:
    """As written, with full recomputation, 133 s by the formulas, measured at 90: what the formulas give 100 s would be faster still."""

    def clock(job: Job, answer: Answer) -> Answer:
        timed = clock_by_hand()(job, answer)
        if timed.timing is None or timed.timing.traffic is None:
            raise AssertionError
        measured = job.measured.get("step_seconds")
        return timed if measured is None else replace(timed, timing=timing_of(job, measured, 0.0, timed.timing.traffic))

    written = sheet(step={"activation_checkpointing": "full"}, measured={"step_seconds": 90}, data={"steps": 3600})
    found = plan(written, by_hand(), clock)
    assert found.options[0].job.step.activation_checkpointing == "none"
    seconds = step_seconds(found.as_written)
    assert seconds is not None and seconds.likely == 90
    assert "likely time per token by the formulas (the pilot's too); within" in rule(found.options)


def test_a_saver_that_makes_it_faster_stays(sheet: Sheet) -> None:
    """80 / 8 + 14 a row fit without the fused loss, which here is twice as fast."""

    def clock(job: Job, answer: Answer) -> Answer:
        timed = clock_by_hand()(job, answer)
        if timed.timing is None or timed.timing.traffic is None:
            raise AssertionError
        work = 100.0 if job.step.loss == "fused" else 200.0
        return replace(answer, timing=timing_of(job, work, 0.0, timed.timing.traffic))

    found = plan(sheet(), by_hand(), clock)
    assert found.options[0].job.step.loss == "fused"
    assert plan(sheet(), by_hand(), clock_by_hand()).options[0].job.step.loss == "standard"


def test_only_what_fits_is_timed_and_once(sheet: Sheet) -> None:
    asked: list[tuple[str, str]] = []
    inner = clock_by_hand()

    def clock(job: Job, answer: Answer) -> Answer:
        asked.append((answer.memory.verdict, repr(job)))
        return inner(job, answer)

    found = plan(sheet(batch={"global_rows": 32}, goal={"max_nodes": 2}, machine={"network_gbit_s": 100}), by_hand(), clock)
    assert {verdict for verdict, _ in asked} == {"fits"}
    assert len(asked) < found.spent
    assert len({job for _, job in asked}) == len(asked)
