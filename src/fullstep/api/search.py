"""Searches over variations of one worksheet, sized by the formulas."""

from __future__ import annotations

from collections.abc import Callable

from fullstep.api.answer import size
from fullstep.api.prices import renter_of
from fullstep.api.timing import with_time_alone, with_timing
from fullstep.job import Worksheet
from fullstep.plan.largest import Largest, Vary
from fullstep.plan.largest import largest as find_largest
from fullstep.plan.renting import Renter
from fullstep.plan.search import Plan
from fullstep.plan.search import plan as search
from fullstep.plan.trial import Judge


def plan(
    worksheet: Worksheet, *, trace: bool = False, progress: Callable[[str], None] | None = None, renter: Renter | None = None,
    judge: Judge = lambda job: job,
) -> Plan:  # fmt: skip
    """Every sensible way to run the worksheet, ranked, and one verdict over all.

    Args:
        worksheet: what is wanted; where it names no machine, the market is searched
        trace: trace the best options (three, six at most) before they are judged and ranked for good; one that cannot be traced
            stays estimated and says why
        progress: is told what is traced
        renter: prices it; None: by the offers of today and ``machines.toml``
        judge: puts to each job what records say of it (see ``api.evidenced.plan_with_evidence``)

    Raises:
        InputError: the worksheet is at fault, or torch and its libraries are to trace and are not installed
    """
    prices = renter_of() if renter is None else renter
    if not trace:
        return search(worksheet, size, with_timing, prices, with_time_alone, judge=judge)
    from fullstep.api.witness import require_libraries, trace_trials  # noqa: PLC0415 (only a trace needs the lab)
    from fullstep.plan.confirm import confirmed  # noqa: PLC0415

    require_libraries("trace")
    found = search(worksheet, size, with_timing, prices, with_time_alone, judge=judge)
    return confirmed(found, lambda trials: trace_trials(trials, progress))


def largest(worksheet: Worksheet, vary: Vary) -> Largest:
    """The largest micro-batch, row length, rank or model that fits, everything else as written.

    Raises:
        InputError: the worksheet is at fault, names no GPU, or has no rank to vary
    """
    found = find_largest(worksheet, vary, size, _models() if vary == "model" else ())
    trial = found.trial
    return found if trial is None else found._replace(trial=trial._replace(answer=with_timing(trial.job, trial.answer)))


def _models() -> list[tuple[str, int]]:
    """Names and parameter counts of the models that come with fullstep."""
    from fullstep.models import bundled_models  # noqa: PLC0415 (only this variation needs them)

    return [(model.name, model.parameters) for model in bundled_models()]
