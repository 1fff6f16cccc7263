"""Worksheets side by side: what differs, and by how much."""

from __future__ import annotations

from dataclasses import replace

from fullstep.job import Job, Worksheet, complete, edit
from fullstep.ledger import Answer
from fullstep.quantities import GIB, Bounds
from fullstep.report.comparison import Column, comparison_text
from fullstep.report.paper import Paper


def other(answer: Answer) -> Answer:
    """Three GiB more allocated, and no second forward."""
    memory = replace(
        answer.memory, allocated_peak_bytes=Bounds(*(end + 3 * GIB for end in answer.memory.allocated_peak_bytes)),
        instants=(answer.memory.instants[0], answer.memory.instants[2]), peak_at="forward", verdict="tight",
    )  # fmt: skip
    return replace(answer, memory=memory)


def lines_of(job: Job, answer: Answer, worksheet: Worksheet) -> dict[str, list[str]]:
    second = complete(edit(worksheet, {"batch.micro_batch": 2, "step.loss": "fused"}))
    columns = [Column("first.toml", job, answer), Column("a/long/path/to/somewhere/else/second.toml", second, other(answer))]
    text = comparison_text(columns, Paper())
    return {line[:20].strip(): line[20:].split() for line in text.splitlines() if line.strip()}


def test_settings_are_shown_where_they_differ(job: Job, answer: Answer, worksheet: Worksheet) -> None:
    lines = lines_of(job, answer, worksheet)
    assert lines["rows a GPU"] == ["1", "x", "4", "2", "x", "4"]
    assert lines["loss"] == ["standard", "fused"]
    assert "attention" not in lines and "model" not in lines


def test_figures_and_their_difference(job: Job, answer: Answer, worksheet: Worksheet) -> None:
    lines = lines_of(job, answer, worksheet)
    assert lines["verdict"] == ["fits", "tight"]
    assert lines["allocated"] == ["25.0", "(24.5-26.0)", "28.0", "(27.5-29.0)", "+3.0"]
    assert lines["needed"] == ["27.0", "(26.0-60.0)", "27.0", "(26.0-60.0)"]
    assert lines["gradients"] == ["4.0", "0.0", "-4.0"]


def test_small_models_stand_in_mib(job: Job, answer: Answer) -> None:
    """Unless one of them is a large one."""
    small = replace(answer, memory=replace(answer.memory, allocated_peak_bytes=Bounds.exact(3 * 2**20)))
    for others, said in ((small, "MiB"), (answer, "GiB")):
        assert f"one GPU, {said}: likely" in comparison_text([Column("a", job, small), Column("b", job, others)], Paper())


def test_an_instant_that_one_of_them_has_not(job: Job, answer: Answer, worksheet: Worksheet) -> None:
    assert lines_of(job, answer, worksheet)["second forward"] == ["25.0", "-"]


def test_the_end_of_a_long_name_is_kept(job: Job, answer: Answer, worksheet: Worksheet) -> None:
    columns = [Column("x" * 60 + "second.toml", job, answer), Column("first.toml", job, answer)]
    assert "xxsecond.toml" in comparison_text(columns, Paper()).splitlines()[0]


def test_three_fit_on_eighty_columns(job: Job, answer: Answer, worksheet: Worksheet) -> None:
    text = comparison_text([Column(name, job, answer) for name in ("a", "b", "c")], Paper(width=100))
    assert max(len(line) for line in text.splitlines()) <= 100


def test_four_share_no_table_that_would_cut_their_numbers(job: Job, answer: Answer) -> None:
    text = comparison_text([Column(name, job, answer) for name in ("a", "b", "c", "d")], Paper(width=80))
    assert max(len(line) for line in text.splitlines()) <= 80
    allocated = [line.split()[1:] for line in text.splitlines() if line.startswith("  allocated  ")]
    assert allocated == [["25.0", "(24.5-26.0)"] * 2] * 3
    assert "…" not in text


def test_the_first_figures_name_their_unit(job: Job, answer: Answer) -> None:
    lines = comparison_text([Column(name, job, answer) for name in ("a", "b")], Paper()).splitlines()
    verdict = next(number for number, line in enumerate(lines) if line.startswith("  verdict"))
    assert lines[verdict - 1] == "  one GPU, GiB: likely (low-high)"


def test_the_keys_that_differ_are_named(job: Job, answer: Answer, worksheet: Worksheet) -> None:
    """Stating a default makes no difference."""
    second = complete(edit(worksheet, {"batch.micro_batch": 2, "step.attention": "sdpa"}))
    assert "batch.micro_batch differ" in comparison_text([Column("a", job, answer), Column("b", second, answer)], Paper())
    assert "none differ" in comparison_text([Column("a", job, answer), Column("b", job, answer)], Paper())


def test_the_evidence_is_named_where_not_all_is_estimated(job: Job, answer: Answer) -> None:
    traced = replace(answer, memory=replace(answer.memory, evidence="traced"))
    columns = [Column("a", job, answer), Column("b", job, traced)]
    assert "evidence" not in comparison_text(columns[:1] * 2, Paper())
    assert [line.split() for line in comparison_text(columns, Paper()).splitlines() if "evidence" in line] == [
        ["evidence", "estimated", "traced"]
    ]
