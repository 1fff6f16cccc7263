"""Scores: the likely peak against the published one, the bounds, and the verdict. README.md states the rule."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import mean, median
from typing import Any, NamedTuple

from published_cases import Case, Counter

from fullstep.api import estimate, worksheet_from_mapping
from fullstep.errors import Fault, InputError
from fullstep.ledger import Memory
from fullstep.quantities import Bounds

DECIDED = ("fits", "does_not_fit")


class Score(NamedTuple):
    """One published peak against the estimate of it."""

    case: Case
    counter: Counter
    measured_bytes: float
    estimated_bytes: Bounds
    peak_at: str

    @property
    def error_percent(self) -> float:
        """Above zero: the estimate is too high."""
        return 100 * (self.estimated_bytes.likely / self.measured_bytes - 1)

    @property
    def inside(self) -> bool:
        return self.estimated_bytes.low <= self.measured_bytes <= self.estimated_bytes.high

    @property
    def width_percent(self) -> float:
        """From the low to the high bound, of the likely value."""
        return 100 * (self.estimated_bytes.high - self.estimated_bytes.low) / self.estimated_bytes.likely


class Verdict(NamedTuple):
    """What the estimate says of a run whose end is known."""

    case: Case
    verdict: str

    @property
    def false_fit(self) -> bool:
        """It says "fits" of a run that ran out of memory."""
        return not self.case.ran and self.verdict == "fits"

    @property
    def false_refusal(self) -> bool:
        """It says "does_not_fit" of a run that ran."""
        return self.case.ran and self.verdict == "does_not_fit"


class Refusal(NamedTuple):
    """A worksheet that the formulas do not cover."""

    case: Case
    faults: tuple[Fault, ...]


class Outcome(NamedTuple):
    """Everything that came out of all cases."""

    scores: tuple[Score, ...]
    verdicts: tuple[Verdict, ...]
    refusals: tuple[Refusal, ...]


class Summary(NamedTuple):
    """Scores taken together. Percentages; worst_under and worst_over are None where no estimate was too low or too high."""

    peaks: int
    mean_absolute: float
    median_absolute: float
    worst_under: Score | None
    worst_over: Score | None
    inside_share: float
    median_width: float


class Judged(NamedTuple):
    """Verdicts taken together."""

    ran: Tally[str]
    ran_out: Tally[str]

    @property
    def false_fits(self) -> int:
        return self.ran_out["fits"]

    @property
    def false_refusals(self) -> int:
        return self.ran["does_not_fit"]

    @property
    def false_refusal_percent(self) -> float:
        """Of the runs that ran."""
        return 100 * self.false_refusals / max(1, self.ran.total())

    @property
    def decided_percent(self) -> float:
        """Of all runs: fits or does_not_fit, neither tight nor unknown."""
        decided = sum(tally[verdict] for tally in self for verdict in DECIDED)
        return 100 * decided / max(1, self.ran.total() + self.ran_out.total())


def score_all(cases: Iterable[Case], answer: Callable[[Mapping[str, Any]], Memory] | None = None) -> Outcome:
    """Sizes every case and compares.

    Args:
        cases: the published runs
        answer: memory of one worksheet; by default what ``fullstep.api.estimate`` says
    """
    answer = answer or _memory
    scores: list[Score] = []
    verdicts: list[Verdict] = []
    refusals: list[Refusal] = []
    for case in cases:
        try:
            memory = answer(case.worksheet)
        except InputError as error:
            refusals.append(Refusal(case, error.faults))
            continue
        scores += (_score(case, counter, size, memory) for counter, size in case.peak_bytes.items())
        verdicts.append(Verdict(case, memory.verdict))
    return Outcome(tuple(scores), tuple(verdicts), tuple(refusals))


def summarize(scores: Sequence[Score]) -> Summary:
    """The figures of at least one score."""
    errors = [abs(score.error_percent) for score in scores]
    lowest = min(scores, key=lambda score: score.error_percent)
    highest = max(scores, key=lambda score: score.error_percent)
    return Summary(
        peaks=len(scores),
        mean_absolute=mean(errors),
        median_absolute=median(errors),
        worst_under=lowest if lowest.error_percent < 0 else None,
        worst_over=highest if highest.error_percent > 0 else None,
        inside_share=100 * mean(score.inside for score in scores),
        median_width=median(score.width_percent for score in scores),
    )


def judge(verdicts: Iterable[Verdict]) -> Judged:
    """How often which verdict was given to runs that ran and to runs that ran out."""
    listed = tuple(verdicts)
    return Judged(
        ran=Tally(item.verdict for item in listed if item.case.ran),
        ran_out=Tally(item.verdict for item in listed if not item.case.ran),
    )


def by_tier(scores: Iterable[Score]) -> dict[tuple[str, str], list[Score]]:
    """Scores by (tier, counter), in that order."""
    return _grouped(scores, lambda score: (score.case.tier, score.counter))


def by_group(scores: Iterable[Score]) -> dict[tuple[str, str], list[Score]]:
    """Scores by (group, counter), in that order."""
    return _grouped(scores, lambda score: (score.case.group, score.counter))


def _grouped(scores: Iterable[Score], key: Callable[[Score], tuple[str, str]]) -> dict[tuple[str, str], list[Score]]:
    groups: dict[tuple[str, str], list[Score]] = {}
    for score in scores:
        groups.setdefault(key(score), []).append(score)
    return dict(sorted(groups.items()))


def _memory(worksheet: Mapping[str, Any]) -> Memory:
    return estimate(worksheet_from_mapping(worksheet)).memory


def _score(case: Case, counter: Counter, measured_bytes: float, memory: Memory) -> Score:
    """Where the source does not say which counter it printed, the nearest of the three is compared."""
    counters = {
        "allocated": memory.allocated_peak_bytes,
        "reserved": memory.reserved_peak_bytes,
        "device": memory.device_peak_bytes,
    }
    nearest = min(counters.values(), key=lambda bounds: abs(bounds.likely - measured_bytes))
    return Score(case, counter, measured_bytes, counters.get(counter, nearest), memory.peak_at)
