"""The search as JSON, by the contract."""

from __future__ import annotations

from typing import Any

from fullstep import __version__
from fullstep.plan.largest import Largest
from fullstep.plan.rejections import Rejection
from fullstep.plan.remedies import Remedy
from fullstep.plan.search import Plan
from fullstep.plan.trial import Trial
from fullstep.report.json import SCHEMA, answer_as_dict
from fullstep.report.scaling import scaling_row_as_dict


def plan_as_dict(plan: Plan) -> dict[str, Any]:
    """All of a search. ``options`` best first, each with its complete worksheet; ``closest``: where all that fits ends too late."""
    return {
        "schema": SCHEMA,
        "fullstep": __version__,
        "verdict": plan.verdict._asdict(),
        "options": [_option(trial) for trial in plan.options],
        "closest": _option(plan.shown) if plan.aside.trials and not plan.options else None,
        "scaling": [scaling_row_as_dict(row) for row in plan.scaling],
        "rejected": [_rejection(out) for out in plan.rejected],
        "remedies": [_remedy(remedy) for remedy in plan.remedies],
        "worksheet": plan.as_written.worksheet.as_dict(),
        "missing": [missing._asdict() for missing in plan.missing],
        "estimates": plan.spent,
    }


def largest_as_dict(found: Largest) -> dict[str, Any]:
    """What fits at most, with the whole answer for it."""
    return {
        "schema": SCHEMA,
        "fullstep": __version__,
        "vary": found.vary,
        "key": found.key,
        "value": found.value,
        "next_value": found.next_value,
        "note": found.note,
        "option": None if found.trial is None else _option(found.trial),
        "remedies": [_remedy(remedy) for remedy in found.remedies],
    }


def _option(trial: Trial) -> dict[str, Any]:
    return {**answer_as_dict(trial.answer), "worksheet": trial.worksheet.as_dict(), "changes": dict(trial.changes)}


def _rejection(out: Rejection) -> dict[str, Any]:
    return {
        "what": out.what,
        "limit": out.limit,
        "needed": _amount(out.needed, out.unit),
        "available": out.available,
        "unit": out.unit,
        "remedy": None if out.remedy is None else dict(out.remedy),
        "changes_training": out.changes_training,
        "count": out.candidates,
        "detail": out.detail,
    }


def _amount(needed: float | None, unit: str) -> float | None:
    """Whole bytes; other units as they are."""
    return needed if needed is None or unit != "bytes" else round(needed)


def _remedy(remedy: Remedy) -> dict[str, Any]:
    return {
        "changes": dict(remedy.changes),
        "changes_training": remedy.changes_training,
        "what": remedy.words,
        "needed_bytes": remedy.answer.memory.needed_bytes.as_whole(),
    }
