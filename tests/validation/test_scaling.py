"""Published scaling efficiencies: every row has a source, the estimate stays as near as it is, and the page says what comes out."""

from __future__ import annotations

import statistics

import scaling


def test_every_case_has_a_source_and_two_rates() -> None:
    for case in scaling.cases():
        assert case.source and case.date
        assert 0 < case.published_percent <= 100, case.name


def test_within_four_and_a_half_points_on_average() -> None:
    """All but ZeRO-1 over 1,024 ranks within seven points, on fast networks up to 128 GPUs within two and a half."""
    found = {score.case.name: abs(score.error_points) for score in scaling.scores()}
    assert statistics.mean(found.values()) < 5
    assert [name for name, error in found.items() if error > 7] == ["internevo-7b-1024-shards-over-all"]
    assert max(error for name, error in found.items() if name.startswith("torchtitan") or name == "llm-foundry-7b-128") < 2.5


def test_dividing_inside_the_node_scales_better_than_over_all_ranks() -> None:
    found = {score.case.name: score.likely_percent for score in scaling.scores()}
    assert found["internevo-7b-1024-shards-in-node"] > found["internevo-7b-1024-shards-over-all"] + 10


def test_the_page_says_what_comes_out() -> None:
    assert scaling.PAGE.read_text(encoding="utf-8") == scaling.page(scaling.scores()), "run `python validation/scaling.py`"
