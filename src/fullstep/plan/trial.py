"""Variations of one worksheet, each sized once, within a budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from operator import itemgetter
from typing import NamedTuple

from fullstep.errors import InputError
from fullstep.job import Job, Worksheet, complete, edit
from fullstep.ledger import Answer, Verdict

Size = Callable[[Job], Answer]
"""what sizes a completed job: the formulas, or in tests a function made by hand"""

_VERDICT_ORDER: dict[Verdict, int] = {"fits": 0, "tight": 1, "unknown": 2, "does_not_fit": 3}
BUDGET = 400
"""estimates that one search may cost: each takes well under a millisecond"""


class Trial(NamedTuple):
    """One variation of the worksheet and what it was answered with."""

    changes: Mapping[str, object]
    """against the worksheet as written; empty: as written"""
    worksheet: Worksheet
    job: Job
    answer: Answer

    @property
    def verdict(self) -> Verdict:
        """Of GPU and host memory together: the worse; a host whose memory is not known does not count."""
        host = self.answer.host.verdict
        own = self.answer.memory.verdict
        return own if host == "unknown" else max(own, host, key=verdict_order)

    @property
    def fits(self) -> bool:
        return self.verdict == "fits"


class Refusal(NamedTuple):
    """A variation that cannot be sized: the combination is impossible or not covered."""

    changes: Mapping[str, object]
    error: InputError


def verdict_order(verdict: Verdict) -> int:
    """0 for fits, then tight, unknown, does_not_fit."""
    return _VERDICT_ORDER[verdict]


class Workbench:
    """Sizes variations of one worksheet; equal ones once. Its answers are exact, it only remembers them."""

    def __init__(self, worksheet: Worksheet, size: Size, budget: int = BUDGET) -> None:
        """
        Raises:
            InputError: the worksheet as written is at fault or not covered
        """
        self._size = size
        self._known: dict[tuple[tuple[str, object], ...], Trial | Refusal] = {}
        self._budget = budget
        self.worksheet = worksheet
        job = complete(worksheet)
        self.as_written = Trial({}, worksheet, job, size(job))
        self._known[()] = self.as_written

    @property
    def size(self) -> Size:
        """What sizes a completed job."""
        return self._size

    @property
    def spent(self) -> int:
        """Estimates made so far."""
        return len(self._known)

    @property
    def exhausted(self) -> bool:
        """The budget is used up: what is found so far has to do."""
        return self.spent >= self._budget

    def may_change(self, key: str) -> bool:
        """Neither the key nor its table is listed under ``plan.fixed``."""
        fixed = self.as_written.job.fixed
        return key not in fixed and key.partition(".")[0] not in fixed

    def allows(self, changes: Mapping[str, object]) -> bool:
        """All of the changes are to keys that ``plan`` may change."""
        return all(self.may_change(key) for key in self.needed(changes))

    def needed(self, changes: Mapping[str, object]) -> dict[str, object]:
        """The changes without those that set what the completed worksheet has anyway."""
        return {key: value for key, value in changes.items() if value is None or _value(self.as_written.job, key) != value}

    def try_out(self, changes: Mapping[str, object]) -> Trial | Refusal:
        """The worksheet with these changes, completed and sized. A pilot's figures belong to the worksheet as written alone."""
        needed = self.needed(changes)
        if all(value is None for value in needed.values()):
            return self.as_written
        key = tuple(sorted(changes.items(), key=itemgetter(0)))
        if key not in self._known:
            self._known[key] = self._sized(needed, changes)
        return self._known[key]

    def _sized(self, changes: Mapping[str, object], wanted: Mapping[str, object]) -> Trial | Refusal:
        try:
            worksheet, job = self._completed(changes)
            lost = {key: value for key, value in wanted.items() if value is not None and _value(job, key) not in (value, _MISSING)}
            if lost:  # a default that another change moved: say it outright
                changes = {**changes, **lost}
                worksheet, job = self._completed(changes)
            return Trial(changes, worksheet, job, self._size(job))
        except InputError as error:
            return Refusal(changes, error)

    def _completed(self, changes: Mapping[str, object]) -> tuple[Worksheet, Job]:
        worksheet = edit(self.worksheet, {**changes, **dict.fromkeys(self._pilot_keys())})
        return worksheet, replace(complete(worksheet), measured={})

    def _pilot_keys(self) -> list[str]:
        return [f"measured.{key}" for key in self.as_written.job.measured]


def _value(job: Job, key: str) -> object:
    """What a completed job has for a worksheet key; a key that jobs do not hold under its own name counts as different."""
    table, _, name = key.partition(".")
    return getattr(getattr(job, table, None), name, _MISSING)


_MISSING = object()
