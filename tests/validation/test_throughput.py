"""The published step times: every row is a case or left out with a reason, and nothing gets worse unseen."""

from __future__ import annotations

import json

import throughput

FIELDS = {
    "id", "group", "source", "date", "hardware_known", "worksheet", "seconds_per_optimizer_step", "assumed", "not_said_by_worksheet",
}  # fmt: skip


def rows() -> list[dict[str, object]]:
    return [json.loads(line) for line in throughput.CASES.read_text(encoding="utf-8").splitlines()]


def test_all_published_rows_are_cases_or_left_out_with_a_reason() -> None:
    """383 rows of clusters; none twice."""
    left_out = [name for entry in throughput.exclusions() for name in entry["ids"]]
    names = [str(row["id"]) for row in rows()] + left_out
    assert len(names) == len(set(names)) == 383
    assert all(entry["reason"] for entry in throughput.exclusions())


def test_remarks_are_on_rows_that_are_there_and_on_no_others() -> None:
    """What is off by more than the aim without a remark says so on the page."""
    known = {case.name: case for case in throughput.cases()}
    unsaid, gaps = throughput.remarks("unsaid"), throughput.remarks("gap")
    assert unsaid.keys() | gaps.keys() <= known.keys()
    assert not any(known[name].scored for name in unsaid)
    assert all(known[name].scored for name in gaps)


def test_every_case_says_where_it_is_from_and_what_was_assumed() -> None:
    for row in rows():
        assert set(row) == FIELDS
        assert row["source"] and row["date"]
        assert float(str(row["seconds_per_optimizer_step"])) > 0


def test_only_uneven_pipelines_are_refused() -> None:
    assert {case.refused.split(":")[1].strip() for case in throughput.cases() if case.refused} <= {"layout.pipeline"}


def test_computing_alone_is_near_the_measurement_of_one_node_and_seldom_above() -> None:
    """Without communication an estimate has to be low. Aim of whole steps: 15 %, a factor of 1.5."""
    scores = [found for found in throughput.score(throughput.compute_only, throughput.cases()) if found.case.scored]
    assert len(scores) > 150
    errors = [found.error_percent for found in scores]
    assert sum(map(abs, errors)) / len(errors) < 15
    assert sum(errors) / len(errors) < 0
    single = [found for found in scores if found.case.job is not None and found.case.job.machine.gpus == 1]
    assert sum(abs(found.error_percent) for found in single) / len(single) < 12
