"""The course of a traced step as a drawing: what is allocated at each landmark, with the peak marked."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from fullstep.ledger import Moment
from fullstep.report.paper import Paper
from fullstep.report.wording import unit_of

_HEIGHT = 8
_AXIS = 13
"""signs on the left: the figure and the axis"""
_WIDEST = 4
"""signs for one landmark, where there are few"""
_LETTERS = {
    "inputs": ("i", "inputs"),
    "forward": ("f", "forward"),
    "loss": ("l", "loss"),
    "backward": ("b", "backward"),
    "optimizer_step": ("o", "optimizer step"),
    "gradients_cleared": ("c", "gradients cleared"),
}


class _Column(NamedTuple):
    """One sign of the drawing: the largest of the landmarks that it stands for."""

    moment: Moment
    first: int
    """place of its first landmark in the timeline"""


def peak_of(timeline: Sequence[Moment]) -> Moment:
    """The landmark with the largest peak, the first of equals."""
    return max(timeline, key=lambda moment: moment.allocated_peak_bytes)


def moment_words(moment: Moment, micro_batches: int) -> str:
    """A landmark of a step in words: ``micro-batch 3 of 4, backward, block 31``."""
    words = [f"micro-batch {moment.micro_batch} of {max(micro_batches, moment.micro_batch)}"] if moment.micro_batch else []
    words.append(moment.phase.replace("_", " "))
    if moment.block is not None:
        words.append(f"block {moment.block}")
    return ", ".join(words)


def timeline_lines(timeline: Sequence[Moment], paper: Paper) -> list[str]:
    """The drawing, eight lines high: a sign for each landmark, several of them where there are few, one for several where there are many.

    Under it a letter for the phase of each sign, and the number of a micro-batch where it begins.

    Args:
        timeline: landmarks of one optimizer step, in order; none of them: no drawing
        paper: how to print
    """
    if not timeline:
        return []
    peak = peak_of(timeline)
    columns = _columns(timeline, paper.width - _AXIS - 1)
    most = peak.allocated_peak_bytes or 1
    marked = next(place for place, column in enumerate(columns) if column.moment is peak)
    bars = paper.columns([column.moment.allocated_peak_bytes / most for column in columns], _HEIGHT)
    lines = [f"{unit_of(most).sized(most):>{_AXIS - 2}}  {' ' * marked}" + paper.ink("▼", "bold", "red")]
    lines += [f"{'':>{_AXIS - 1}}│{bar.rstrip()}" for bar in bars]
    lines.append(f"{'0':>{_AXIS - 2}} └{'─' * len(columns)}")
    lines.append(" " * _AXIS + "".join(_LETTERS[column.moment.phase][0] for column in columns))
    if any(moment.micro_batch > 1 for moment in timeline):
        lines.append(f"{'micro-batch':>{_AXIS - 2}}  {_micro_batch_marks(timeline, columns)}")
    return [*lines, *_legend(timeline, paper)]


def _columns(timeline: Sequence[Moment], room: int) -> list[_Column]:
    count = len(timeline)
    if count <= room:
        wide = min(_WIDEST, room // count)
        return [_Column(moment, place) for place, moment in enumerate(timeline) for _ in range(wide)]
    edges = [column * count // room for column in range(room + 1)]
    return [_Column(peak_of(timeline[start:end]), start) for start, end in pairwise(edges)]


def _micro_batch_marks(timeline: Sequence[Moment], columns: Sequence[_Column]) -> str:
    """The number of each micro-batch above its first sign; left out where there is no room."""
    line = ""
    seen = 0
    for place, column in enumerate(columns):
        number = timeline[column.first].micro_batch
        if number > seen:
            seen = number
            if len(line) < place or not line:
                line = line.ljust(place) + str(number)
    return line


def _legend(timeline: Sequence[Moment], paper: Paper) -> list[str]:
    present = dict.fromkeys(moment.phase for moment in timeline)
    words = ", ".join(f"{letter} {name}" for phase, (letter, name) in _LETTERS.items() if phase in present)
    many = f"{len(timeline)} landmarks" + ("" if len(timeline) <= paper.width - _AXIS - 1 else ", of neighbours the largest")
    return [" " * _AXIS + line for line in paper.wrapped(f"{words}; {many}, not to the scale of time", paper.width - _AXIS)]
