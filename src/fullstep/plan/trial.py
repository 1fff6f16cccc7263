"""Variations of one worksheet, each sized once, within a budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from operator import itemgetter
from typing import NamedTuple

from fullstep.errors import Fault, InputError
from fullstep.job import Job, Worksheet, complete, edit
from fullstep.ledger import Answer, Cost, Verdict
from fullstep.plan.deadline import Ending
from fullstep.plan.rental import Rental

Size = Callable[[Job], Answer]
"""what sizes a completed job: the formulas, or in tests a function made by hand"""
Judge = Callable[[Job], Job]
"""puts to a completed job what records say of it"""

_VERDICT_ORDER: dict[Verdict, int] = {"fits": 0, "tight": 1, "unknown": 2, "does_not_fit": 3}
BUDGET = 400
"""estimates that one search may cost: each takes well under a millisecond"""


class Trial(NamedTuple):
    """One variation of the worksheet and what it was answered with."""

    changes: Mapping[str, object]
    """against the worksheet as written, None: the key is taken out; empty: as written"""
    worksheet: Worksheet
    job: Job
    answer: Answer
    ending: Ending | None = None
    """how the run stands to the deadline; None: there is none, or the trial was not timed"""
    seconds_per_token: float | None = None
    """likely time of the whole machine per useful token, by which trials are compared [s]. By the formulas also where a pilot or a record
    measured one of them, or one near it: a measured step of one beside estimated ones of the others says nothing of which is faster. Links
    that were measured are those of all. None: not known"""
    rentals: tuple[Rental, ...] = ()
    """on whose machines, at what price: on demand before interruptible; empty: nobody was asked, or nobody has them"""

    @property
    def rental(self) -> Rental | None:
        """The first of them."""
        return self.rentals[0] if self.rentals else None

    @property
    def cost(self) -> Cost | None:
        """Of the whole job on the first of its rentals; None: not known."""
        return None if self.rental is None else self.rental.cost

    @property
    def over_budget(self) -> int:
        """0 for a likely cost within the budget, or where there is none; then what is open, and what likely costs more."""
        budget = self.job.goal.budget
        if budget is None:
            return 0
        likely = [rental.cost.likely for rental in self.rentals if rental.cost is not None]
        return 2 * int(min(likely) > Decimal(budget)) if likely else 1

    @property
    def verdict(self) -> Verdict:
        """Of GPU and host memory together: the worse; a host whose memory is not known does not count."""
        host = self.answer.host.verdict
        own = self.answer.memory.verdict
        return own if host == "unknown" else max(own, host, key=verdict_order)

    @property
    def fits(self) -> bool:
        return self.verdict == "fits"

    @property
    def may_be_late(self) -> bool:
        """The run likely ends after the deadline."""
        return self.ending is not None and self.ending.state in ("perhaps", "late")

    @property
    def lateness(self) -> int:
        """0 for a run that likely ends within the deadline, or where there is none; then what is open, and what may be late."""
        return 2 if self.may_be_late else int(self.ending is not None and self.ending.state == "open")


class Refusal(NamedTuple):
    """A variation that cannot be sized: the combination is impossible or not covered."""

    changes: Mapping[str, object]
    error: InputError


def verdict_order(verdict: Verdict) -> int:
    """0 for fits, then tight, unknown, does_not_fit."""
    return _VERDICT_ORDER[verdict]


class Workbench:
    """Sizes variations of one worksheet; equal ones once. Its answers are exact, it only remembers them."""

    def __init__(
        self, worksheet: Worksheet, size: Size, budget: int = BUDGET, fixed: frozenset[str] | None = None, *, judge: Judge = lambda job: job
    ) -> None:
        """
        Args:
            worksheet: as written
            size: what sizes a completed job
            budget: estimates that all trials together may cost
            fixed: keys that no variation may alter; None: those under ``plan.fixed``
            judge: puts to each job what records say of it

        Raises:
            InputError: the worksheet as written is at fault or not covered
        """
        self._size = size
        self._judge = judge
        self._known: dict[tuple[tuple[str, object], ...], Trial | Refusal] = {}
        self._budget = budget
        self.worksheet = worksheet
        job = judge(complete(worksheet))
        self.as_written = Trial({}, worksheet, job, size(job))
        self._known[()] = self.as_written
        self._fixed = {key: held(job, key) for key in (job.fixed if fixed is None else fixed)}

    @property
    def size(self) -> Size:
        """What sizes a completed job."""
        return self._size

    @property
    def judge(self) -> Judge:
        """What puts to a job what records say of it."""
        return self._judge

    @property
    def spent(self) -> int:
        """Estimates made so far."""
        return len(self._known)

    @property
    def exhausted(self) -> bool:
        """The budget is used up: what is found so far has to do."""
        return self.spent >= self._budget

    def may_change(self, key: str) -> bool:
        """The key is not fixed."""
        return key not in self._fixed

    def allows(self, changes: Mapping[str, object]) -> bool:
        """All of the changes are to keys that ``plan`` may change."""
        return all(self.may_change(key) for key in self.needed(changes))

    def needed(self, changes: Mapping[str, object]) -> dict[str, object]:
        """The changes without those that set what the completed worksheet has anyway; a fixed key is not taken out either."""
        job = self.as_written.job
        return {key: value for key, value in changes.items() if (self.may_change(key) if value is None else _value(job, key) != value)}

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
        if not self.allows(changes):
            return self._refusal(changes, [key for key in changes if not self.may_change(key)])
        try:
            worksheet, job = self._completed(changes)
            lost = {key: value for key, value in wanted.items() if value is not None and _value(job, key) not in (value, _MISSING)}
            lost |= {key: _value(self.as_written.job, key) for key in self._moved(job) if self._is_default(key)}
            if lost:  # a default that another change moved: say it outright
                changes = {**changes, **lost}
                worksheet, job = self._completed(changes)
            moved = self._moved(job)
            if moved:
                return self._refusal(changes, moved)
            told = {key: value for key, value in changes.items() if value is not None or self.worksheet.stated(key) is not None}
            judged = self._judge(job)
            return Trial(told, worksheet, judged, self._size(judged))
        except InputError as error:
            return Refusal(changes, error)

    def _moved(self, job: Job) -> list[str]:
        """Fixed keys that another value has come to."""
        return [key for key, value in self._fixed.items() if held(job, key) != value]

    def _is_default(self, key: str) -> bool:
        """Not stated in the worksheet, but held by its job, so that it can be stated."""
        return self.worksheet.stated(key) is None and _value(self.as_written.job, key) is not _MISSING

    @staticmethod
    def _refusal(changes: Mapping[str, object], keys: list[str]) -> Refusal:
        remedy = "Take it out of plan.fixed to let it vary."
        return Refusal(changes, InputError(Fault("plan.fixed", f"{', '.join(keys)} would change", "", remedy)))

    def _completed(self, changes: Mapping[str, object]) -> tuple[Worksheet, Job]:
        worksheet = edit(self.worksheet, {**changes, **dict.fromkeys(self._pilot_keys())})
        return worksheet, replace(complete(worksheet), measured={})

    def _pilot_keys(self) -> list[str]:
        keys = (f"measured.{key}" for key in self.as_written.job.measured)
        return [key for key in keys if self.worksheet.stated(key) is not None]


def _value(job: Job, key: str) -> object:
    """What a completed job has for a worksheet key; a key that jobs do not hold under its own name counts as different."""
    table, _, name = key.partition(".")
    return getattr(getattr(job, table, None), name, _MISSING)


def held(job: Job, key: str) -> object:
    """The same also for keys that a job holds in another form, to tell whether it changed; None for what no variation touches."""
    batch, machine = job.batch, job.machine
    if key == "batch.global_rows":
        return batch.micro_batch * batch.accumulation * job.layout.data_parallel
    if key == "machine.gpu":
        return None if machine.card is None else machine.card.key
    value = _value(job, "machine.gpu_memory_bytes" if key == "machine.gpu_memory_gib" else key)
    return None if value is _MISSING else value


_MISSING = object()
