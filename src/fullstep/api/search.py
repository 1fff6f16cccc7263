"""Searches over variations of one worksheet, sized by the formulas."""

from __future__ import annotations

from fullstep.api.answer import size
from fullstep.job import Worksheet
from fullstep.plan.largest import Largest, Vary
from fullstep.plan.largest import largest as find_largest
from fullstep.plan.search import Plan
from fullstep.plan.search import plan as search


def plan(worksheet: Worksheet) -> Plan:
    """Every sensible way to run the worksheet, ranked, and one verdict over all.

    Raises:
        InputError: the worksheet is at fault
    """
    return search(worksheet, size)


def largest(worksheet: Worksheet, vary: Vary) -> Largest:
    """The largest micro-batch, row length, rank or model that fits, everything else as written.

    Raises:
        InputError: the worksheet is at fault, names no GPU, or has no rank to vary
    """
    return find_largest(worksheet, vary, size, _models() if vary == "model" else ())


def _models() -> list[tuple[str, int]]:
    """Names and parameter counts of the models that come with fullstep."""
    from fullstep.models import bundled_models  # noqa: PLC0415 (only this variation needs them)

    return [(model.name, model.parameters) for model in bundled_models()]
