"""What is known about the errors that are left: ``known_gaps.toml``, written by hand, against computed scores."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from accuracy_scores import Score

KNOWN_GAPS = Path(__file__).resolve().parent / "known_gaps.toml"


class Gap(NamedTuple):
    """A mechanism that is missing, or an error whose cause was not found."""

    title: str
    cases: tuple[str, ...]
    """patterns of ids"""
    counters: tuple[str, ...]
    """empty: all"""
    missing: str

    def covers(self, score: Score) -> bool:
        """Whether this gap may explain the score's error."""
        counted = not self.counters or score.counter in self.counters
        return counted and any(fnmatchcase(score.case.name, pattern) for pattern in self.cases)


def known_gaps(path: Path = KNOWN_GAPS) -> tuple[Gap, ...]:
    """All gaps, in the order of the file.

    Raises:
        KeyError: a gap has no title, cases or missing
        tomllib.TOMLDecodeError: the file is no TOML
    """
    rows = tomllib.loads(path.read_text(encoding="utf-8"))["gap"]
    return tuple(Gap(row["title"], tuple(row["cases"]), tuple(row.get("counters", ())), " ".join(row["missing"].split())) for row in rows)


def gap_of(score: Score, gaps: Sequence[Gap]) -> Gap | None:
    """The first gap that covers the score; None where nothing is known."""
    return next((gap for gap in gaps if gap.covers(score)), None)
