"""Time in the report on a search: the table of servers, what is too late, and the network that would help."""

from __future__ import annotations

from typing import Any

import pytest
from by_hand import by_hand
from clock_by_hand import clock_by_hand

from fullstep.job import Worksheet, edit
from fullstep.plan.search import Plan, plan
from fullstep.report.paper import Paper
from fullstep.report.plan_json import plan_as_dict
from fullstep.report.plan_text import plan_text
from fullstep.report.scaling import scaling_lines


def planned(worksheet: Worksheet, **changes: Any) -> Plan:
    """100 h on one node of eight; 50, and what the network adds, on two (see clock_by_hand.py)."""
    keys = {name.replace("__", "."): value for name, value in changes.items()}
    return plan(
        edit(worksheet, {"data.steps": 3600, "batch.global_rows": 32, "batch.accumulation": None, **keys}), by_hand(), clock_by_hand()
    )


def joined(found: Plan, width: int = 100) -> str:
    return " ".join(plan_text(found, Paper(width=width)).split())


@pytest.fixture
def slow(worksheet: Worksheet) -> Plan:
    return planned(worksheet, goal__max_nodes=2, goal__finish_within_hours=60, machine__network_gbit_s=10)


def test_the_table_of_servers(slow: Plan) -> None:
    """150 h on two are a third of the speed per node; 100 of 150 are communication."""
    head, one, two = scaling_lines(slow.scaling, Paper(width=140))
    assert head.split() == ["Scaling", "run", "low-high", "efficiency", "not", "hidden", "layout"]
    assert one.split()[:8] == ["1", "server", "100.0", "h", "90.0-110.0", "h", "100", "%"]
    assert two.split()[:10] == ["2", "servers", "150.0", "h", "135.0-165.0", "h", "33", "%", "67", "%"]
    assert two.endswith(", slower than 1 server")


def test_seconds_where_no_data_is_stated(worksheet: Worksheet) -> None:
    found = planned(worksheet, data__steps=None, goal__max_nodes=2, machine__network_gbit_s=100)
    head, _, two = scaling_lines(found.scaling, Paper(width=140))
    assert "step" in head.split() and two.split()[2:6] == ["60.00", "s", "54.00-66.00", "s"]


@pytest.mark.parametrize("width", [80, 100, 120])
def test_the_table_keeps_its_columns_on_narrow_paper(slow: Plan, width: int) -> None:
    lines = scaling_lines(slow.scaling, Paper(width=width))
    assert all(len(line) <= width for line in lines)
    figures = [line for line in lines if " h " in line]
    assert len({line.index(" h ") for line in figures}) == 1


def test_what_cannot_be_divided_is_told_once(worksheet: Worksheet) -> None:
    """32 rows over 64, 128 and 256 GPUs."""
    lines = scaling_lines(planned(worksheet, goal__max_nodes=32, machine__network_gbit_s=1000).scaling, Paper(width=140))
    assert [line.split()[0] for line in lines] == ["Scaling", "1", "2", "4", "8"]
    assert lines[-1].startswith("    8 or more    32 rows per optimizer step cannot be divided over 64 ranks")


def test_no_table_where_nothing_is_known(worksheet: Worksheet) -> None:
    """Neither a time nor a line rate."""
    untimed = plan(edit(worksheet, {"goal.max_nodes": 2, "batch.global_rows": 32, "batch.accumulation": None}), by_hand())
    assert len(untimed.scaling) == 2 and scaling_lines(untimed.scaling, Paper()) == []


def test_what_is_too_late_stands_in_one_line(slow: Plan) -> None:
    text = joined(slow)
    assert "Not too late: " in text and " 100.0 h" in text and "60 h there" in text
    assert "2 nodes: a step takes 150 s at best, 100 s on 1 node; would be faster with machine.network_gbit_s = 25" in text
    assert text.count("too late: ") == 1


def test_what_would_end_in_time(worksheet: Worksheet) -> None:
    found = planned(worksheet, goal__max_nodes=2, goal__finish_within_hours=60, machine__network_gbit_s=1000)
    text = joined(found)
    assert "would end in time with machine.nodes = 2" in text
    assert "51 s a step · 51.0 h (45.9-56.1)" in text or "51.0 s a step · 51.0 h (45.9-56.1)" in text
    assert "Ranked by fit, in time, nothing offloaded, fewer servers, likely time per token; within 10 % of it: " in text


def test_a_network_that_nobody_stated(worksheet: Worksheet) -> None:
    text = joined(planned(worksheet, goal__max_nodes=2, goal__finish_within_hours=60))
    assert "time not known, the network is not stated; 180 Gbit/s per server keep communication under a tenth of the step: 55.6 h" in text
    assert "Decide by state machine.network_gbit_s" in text


def test_the_names_in_json(slow: Plan) -> None:
    document = plan_as_dict(slow)
    late = next(out for out in document["rejected"] if out["limit"] == "time")
    assert (round(late["needed"], 6), late["available"], late["unit"]) == (100, 60, "hours")
    network = next(out for out in document["rejected"] if out["limit"] == "network")
    assert (network["needed"], network["available"], network["unit"]) == (25, 10, "Gbit/s")
    assert document["options"] == [] and document["closest"]["worksheet"]["machine"]["gpus"] == 8
    one, two = document["scaling"]
    assert set(one) == set(two) == {
        "nodes", "gpus", "layout", "changes", "verdict", "step_seconds", "run_seconds", "efficiency", "exposed_communication_fraction",
        "required_gbit_s_per_node", "slower_than_nodes", "why",
    }  # fmt: skip
    assert (two["gpus"], two["slower_than_nodes"], two["step_seconds"]["likely"]) == (16, 1, 150)
    assert two["required_gbit_s_per_node"]["likely"] == pytest.approx(180)
