"""The scorer itself, against arithmetic by hand on invented answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from accuracy_page import page, short_table
from accuracy_scores import Outcome, judge, score_all, summarize
from generated_pages import between_markers
from known_gaps import Gap, gap_of
from published_cases import Case, Counter, published_cases

from fullstep.errors import Fault, UnsupportedError
from fullstep.ledger import Holdings, Instant, Memory, OtherPeaks, Verdict
from fullstep.quantities import Bounds


def a_case(name: str, peaks: dict[Counter, float], *, ran: bool = True) -> Case:
    return Case(name, "invented", "A", "by hand", {"id": name}, ran, peaks, "")


def an_answer(allocated: float, reserved: float, device: float, verdict: Verdict = "fits") -> Memory:
    """Bounds 10 % below and 20 % above."""
    counters = [Bounds(0.9 * likely, likely, 1.2 * likely) for likely in (allocated, reserved, device)]
    return Memory(
        evidence="estimated", allocated_peak_bytes=counters[0], reserved_peak_bytes=counters[1], device_peak_bytes=counters[2],
        needed_bytes=counters[0], peak_at="backward", instants=(Instant("backward", Holdings(weights=allocated)),),
        other_peaks=OtherPeaks(), usable_bytes=None, verdict=verdict,
    )  # fmt: skip


def scored(*pairs: tuple[Case, Memory]) -> Outcome:
    answers = {case.name: memory for case, memory in pairs}

    def answer(worksheet: Mapping[str, Any]) -> Memory:
        return answers[worksheet["id"]]

    return score_all([case for case, _ in pairs], answer)


def test_each_counter_is_compared_with_its_own() -> None:
    outcome = scored((a_case("one", {"allocated": 100, "reserved": 100, "device": 100}), an_answer(90, 110, 130)))
    assert [score.counter for score in outcome.scores] == ["allocated", "reserved", "device"]
    assert [score.error_percent for score in outcome.scores] == pytest.approx([-10, 10, 30])
    assert [score.inside for score in outcome.scores] == [True, True, False]  # 81..108, 99..132, 117..156
    assert [score.width_percent for score in outcome.scores] == pytest.approx([30, 30, 30])


def test_an_unspecified_peak_is_compared_with_the_nearest() -> None:
    outcome = scored((a_case("one", {"unspecified": 100}), an_answer(80, 95, 110)))
    assert outcome.scores[0].error_percent == pytest.approx(-5)


def test_a_summary_by_hand() -> None:
    pairs = [(a_case(str(number), {"allocated": 100}), an_answer(number, 200, 300)) for number in (96, 101, 125)]
    summary = summarize(scored(*pairs).scores)
    assert (summary.peaks, summary.mean_absolute, summary.median_absolute) == pytest.approx((3, 10, 4))
    assert summary.worst_under is not None and summary.worst_under.case.name == "96"
    assert summary.worst_over is not None and summary.worst_over.case.name == "125"
    assert summary.inside_share == pytest.approx(200 / 3)  # 86.4..115.2 and 90.9..121.2 hold 100, 112.5..150 does not


def test_there_is_no_worst_over_where_all_are_too_low() -> None:
    summary = summarize(scored((a_case("one", {"allocated": 100}), an_answer(99, 200, 300))).scores)
    assert summary.worst_over is None and summary.worst_under is not None


def test_verdicts_by_hand() -> None:
    ran = [(a_case(f"ran {word}", {}), an_answer(1, 1, 1, word)) for word in ("fits", "tight", "does_not_fit")]
    died = [(a_case(f"died {word}", {}, ran=False), an_answer(1, 1, 1, word)) for word in ("fits", "does_not_fit")]
    outcome = scored(*ran, *died)
    judged = judge(outcome.verdicts)
    assert (judged.false_fits, judged.false_refusals) == (1, 1)
    assert judged.false_refusal_percent == pytest.approx(100 / 3)
    assert judged.decided_percent == pytest.approx(80)
    assert [item.case.name for item in outcome.verdicts if item.false_fit] == ["died fits"]
    assert [item.case.name for item in outcome.verdicts if item.false_refusal] == ["ran does_not_fit"]


def test_a_refused_worksheet_is_listed_with_its_reason() -> None:
    def refuse(_: Mapping[str, Any]) -> Memory:
        raise UnsupportedError(Fault("worksheet: layout.context", "2", "1"))

    outcome = score_all([a_case("one", {"allocated": 100})], refuse)
    assert outcome.scores == () and outcome.verdicts == ()
    assert outcome.refusals[0].faults[0].found == "2"


def test_a_gap_covers_by_pattern_and_counter() -> None:
    first, second = scored((a_case("run-7", {"allocated": 100, "device": 100}), an_answer(90, 90, 90))).scores
    gap = Gap("cached", ("run-*",), ("device",), "not known")
    assert gap_of(first, [gap]) is None
    assert gap_of(second, [gap]) is gap


def test_only_what_stands_between_the_markers_is_replaced() -> None:
    assert between_markers("a\n<b>\nold\n<e>\nz\n", "<b>", "<e>", "new\n") == "a\n<b>\nnew\n<e>\nz\n"
    assert between_markers("a\n<b>\n", "<b>", "<e>", "new\n") is None


def test_the_pages_show_sign_case_and_refusals() -> None:
    case = a_case("run-7", {"allocated": 2.0 * 2**30})
    outcome = scored((case, an_answer(1.5 * 2**30, 2**31, 2**31)))
    text = page([case], outcome, [Gap("cached", ("run-*",), (), "not known")])
    assert "| `run-7` | allocated | [cached](#cached) | 2.00 | 1.50 | -25.0 % |" in text
    assert "### cached\n\n1 peak: -25.0 %, -0.5 GiB. not known" in text
    assert "No worksheet refused." in short_table([case], outcome)


def row(**changes: object) -> dict[str, object]:
    fields = ("id", "group", "tier", "source", "date", "software", "worksheet", "measured", "not_stated", "note")
    return {
        **dict.fromkeys(fields),
        "id": "one",
        "group": "g",
        "tier": "A",
        "source": "s",
        "worksheet": {},
        "measured": {"fits": True},
        **changes,
    }


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([row(), row()], r"b.jsonl:2: id 'one' is used in b.jsonl:1"),
        ([row(tier="C")], r"b.jsonl:1: tier 'C'; allowed: A, B"),
        ([row(extra=1)], r"b.jsonl:1: fields .*'extra'"),
        ([row(measured={})], r"b.jsonl:1: measured.fits None"),
    ],
)
def test_a_faulty_case_is_named(tmp_path: Path, rows: list[dict[str, object]], message: str) -> None:
    (tmp_path / "b.jsonl").write_text("".join(json.dumps(item) + "\n" for item in rows), encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        published_cases(tmp_path)


def test_peaks_of_runs_that_ran_out_are_not_compared(tmp_path: Path) -> None:
    (tmp_path / "b.jsonl").write_text(json.dumps(row(measured={"fits": False, "allocated_peak_bytes": 5})) + "\n\n", encoding="utf-8")
    (case,) = published_cases(tmp_path)
    assert not case.ran and case.peak_bytes == {}


def test_the_published_cases_are_all_there() -> None:
    """247 runs of 12 sources, of which 43 ran out of memory."""
    cases = published_cases()
    assert len(cases) == 247
    assert len({case.group for case in cases}) == 12
    assert sum(not case.ran for case in cases) == 43
