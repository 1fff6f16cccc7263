"""The drawing of a step: one sign for a landmark, the peak marked over its own sign, letters and numbers under theirs."""

from __future__ import annotations

from itertools import pairwise

import pytest
from trace_by_hand import BLOCKS, timeline

from fullstep.ledger import Moment
from fullstep.quantities import GIB
from fullstep.report.paper import Paper
from fullstep.report.timeline import moment_words, peak_of, timeline_lines

SHORT = (
    Moment(2, 1, "forward", None, 2 * GIB, 2 * GIB, 0),
    Moment(2, 1, "loss", None, 4 * GIB, 3 * GIB, 0),
    Moment(2, 1, "backward", None, 3 * GIB, 1 * GIB, 0),
    Moment(2, 0, "optimizer_step", None, 1 * GIB, 1 * GIB, 0),
)
"""of 4 GiB: a half, all, three quarters, a quarter; eight lines high these are 4, 8, 6 and 2"""
SHORT_DRAWING = """\
    4.0 GiB      ▼
            │    ████
            │    ████
            │    ████████
            │    ████████
            │████████████
            │████████████
            │████████████████
            │████████████████
          0 └────────────────
             ffffllllbbbboooo
             f forward, l loss, b backward, o optimizer step; 4 landmarks, not to
             the scale of time
"""


def test_a_short_step_is_drawn_wide() -> None:
    assert "\n".join(line.rstrip() for line in timeline_lines(SHORT, Paper(width=81))) + "\n" == SHORT_DRAWING


def test_nothing_is_drawn_of_nothing() -> None:
    assert timeline_lines((), Paper()) == []


@pytest.mark.parametrize("width", [80, 100, 140])
@pytest.mark.parametrize(("micro_batches", "blocks"), [(1, 1), (2, BLOCKS), (8, BLOCKS), (1, 70)])
def test_marks_stand_over_and_under_their_signs(width: int, micro_batches: int, blocks: int) -> None:
    moments = timeline(micro_batches, blocks)
    lines = timeline_lines(moments, Paper(width=width))
    assert max(len(line) for line in lines) <= width
    marker = lines[0].index("▼")
    assert lines[1][marker] == "█", "only the peak reaches the top"
    letters = lines[10]
    assert letters[marker] == "l"
    assert lines[9].index("└") == 12 and len(lines[9]) == len(letters)
    if micro_batches > 1:
        numbers = [(lines[11].index(f"{number}", 13), number) for number in range(1, micro_batches + 1)]
        assert all(before < after for (before, _), (after, _) in pairwise(numbers))
        last_backward = [letters.rindex("b", 0, place) for place, number in numbers if number > 1]
        assert all(place - before <= 2 for (place, _), before in zip(numbers[1:], last_backward, strict=True))


def test_every_landmark_that_is_left_out_is_smaller_than_the_one_shown() -> None:
    """536 landmarks on 86 signs: the losses, one landmark each, are all seen."""
    lines = timeline_lines(timeline(8), Paper(width=100))
    assert lines[10].count("l") == 8
    assert "of neighbours the largest" in " ".join(lines[12:])


def test_plain_paper_has_the_same_lines() -> None:
    plain = Paper(width=80, unicode=False).finish(timeline_lines(timeline(), Paper(width=80)))
    assert plain.isascii() and "?" not in plain
    assert len(plain.splitlines()) == len(timeline_lines(timeline(), Paper(width=80)))


def test_where_the_peak_is_in_words() -> None:
    assert moment_words(peak_of(timeline()), 2) == "micro-batch 2 of 2, loss"
    assert moment_words(Moment(2, 1, "backward", 31, 1, 1, 0), 4) == "micro-batch 1 of 4, backward, block 31"
    assert moment_words(Moment(2, 0, "optimizer_step", None, 1, 1, 0), 4) == "optimizer step"
    assert peak_of((*SHORT, SHORT[1]._replace(micro_batch=2))) is SHORT[1]
