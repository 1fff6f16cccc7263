"""The search as JSON, by the contract."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

from fullstep import __version__
from fullstep.plan.largest import Largest
from fullstep.plan.rejections import Rejection
from fullstep.plan.remedies import Remedy
from fullstep.plan.search import Plan
from fullstep.plan.trial import Trial
from fullstep.report.cost_json import rent_or_buy_as_dict, rental_as_dict
from fullstep.report.json import SCHEMA, answer_as_dict
from fullstep.report.scaling import scaling_row_as_dict


def plan_as_dict(plan: Plan, today: date | None = None) -> dict[str, Any]:
    """All of a search. ``options`` best first, each with its complete worksheet; ``closest``: where all that fits ends too late, or costs
    too much. ``today``: by which prices are old, None: the day it is."""
    day = today or datetime.now(tz=UTC).date()
    rows, is_near = plan.as_written.job.rows_per_step, not plan.options and bool(plan.aside.dear or plan.aside.trials)
    return {
        "schema": SCHEMA,
        "fullstep": __version__,
        "verdict": plan.verdict._asdict(),
        "options": [_option(trial, day, rows) for trial in plan.options],
        "closest": _option(plan.shown, day, rows) if is_near else None,
        **_market(plan),
        "scaling": [scaling_row_as_dict(row) for row in plan.scaling],
        "rejected": [_rejection(out) for out in plan.rejected],
        "remedies": [_remedy(remedy) for remedy in plan.remedies],
        "worksheet": plan.as_written.worksheet.as_dict(),
        "missing": [missing._asdict() for missing in plan.missing],
        "estimates": plan.spent,
    }


def _market(plan: Plan) -> dict[str, Any]:
    """Of a search over the market, by places in ``options``: ``choices`` by what one chooses for, ``pareto`` what no other beats."""
    if not plan.is_market:
        return {}
    places = {id(trial): place for place, trial in enumerate(plan.options)}
    currency = plan.as_written.job.goal.currency
    return {
        "choices": [{"labels": list(choice.labels), "option": places.get(id(choice.trial))} for choice in plan.choices],
        "pareto": [places[id(trial)] for trial in plan.not_beaten if id(trial) in places],
        "rent_or_buy": [rent_or_buy_as_dict(row, currency) for row in plan.rent_or_buy],
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


def _option(trial: Trial, today: date | None = None, rows: int | None = None) -> dict[str, Any]:
    """An answer with its worksheet, and where it is for rent ``offer``, the first of ``offers``.

    ``rows``: of an optimizer step as the worksheet has it; an option with others is another training.
    """
    option = {**answer_as_dict(trial.answer), "worksheet": trial.worksheet.as_dict(), "changes": dict(trial.changes)}
    if trial.job.from_records.used:
        option["records"] = [{"file": name, "match": match} for name, match in trial.job.from_records.used]
    if today is None:
        return option
    rentals = [rental_as_dict(rental, trial.job.goal.currency, today) for rental in trial.rentals]
    changes_training = rows is not None and trial.job.rows_per_step != rows
    return {**option, "changes_training": changes_training, "offer": rentals[0] if rentals else None, "offers": rentals}


def _rejection(out: Rejection) -> dict[str, Any]:
    return {
        "what": out.what,
        "limit": out.limit,
        "needed": _amount(out.needed, out.unit),
        "available": _amount(out.available, out.unit),
        "unit": out.unit,
        "remedy": None if out.remedy is None else dict(out.remedy),
        "changes_training": out.changes_training,
        "count": out.candidates,
        "detail": out.detail,
        **({"offers": [offer.name for offer in out.offers]} if out.offers else {}),
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
