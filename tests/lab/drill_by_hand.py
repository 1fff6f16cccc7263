"""Trainings as ranks would have recorded them, made by hand."""

from __future__ import annotations

from typing import Any

from fullstep.lab.drill.front.seen import Seen, Step

SAVED_AT, LAST = 3, 7
SAVED = {"model.w": "1", "optimizer.w": "2", "scheduler.all": "3", "loader.all": "4", "rng.rank0": "5"}


def steps(first: int = 1, **changed: dict[int, Any]) -> dict[int, Step]:
    """Of a training; ``changed``: field -> step -> value."""
    found = {}
    for number in range(first, LAST + 1):
        values = {"loss": 6.0 + number / 10, "rates": (1.0 / number,), "rows": (number, number + 1), "seconds": 0.5}
        found[number] = Step(**{name: changed.get(name, {}).get(number, value) for name, value in values.items()})
    return found


def whole(end: str = "end") -> Seen:
    """A training that was not interrupted."""
    return Seen("uninterrupted", steps(), {"3": SAVED, "7": {"model.w": end}, "saved 3": SAVED}, ())


def resumed(name: str = "resumed", *, loaded: dict[str, str] | None = None, end: str = "end", step: int = SAVED_AT, **changed: Any) -> Seen:
    """One that went on after step 3."""
    digests = {"loaded": {**SAVED, **(loaded or {})}, "7": {"model.w": end}}
    return Seen(name, steps(SAVED_AT + 1, **changed), digests, ({"loaded": {"step": step}},))
