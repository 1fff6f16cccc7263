"""What holds of every record that is read, be it of a probe or of links: its form, its day, its digest."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

from fullstep.errors import Fault, InputError
from fullstep.formats.probe_record.forms import Form, Mismatch
from fullstep.formats.probe_record.writing import digest_of

CHANGED = "It was changed after it was made: take the original."


def require_whole(record: dict[str, Any], form: Form, origin: str) -> None:
    """Returns where the record has its form, was made on a day that there is, and is as it was written.

    Args:
        record: parsed
        form: of its kind
        origin: the name of its file, for messages

    Raises:
        InputError: one of these does not hold
    """
    try:
        form.check(record)
    except Mismatch as mismatch:
        where = f"{origin}: {mismatch.where}" if mismatch.where else origin
        raise InputError(Fault(where, mismatch.found, mismatch.allowed)) from None
    try:
        datetime.fromisoformat(record["made"])
    except ValueError:
        raise InputError(Fault(f"{origin}: made", f'"{record["made"]}"', "a day and a time that there are", CHANGED)) from None
    if digest_of({name: value for name, value in record.items() if name != "sha256"}) != record["sha256"]:
        found, allowed = "not the digest of what the file holds", "a record as it was written"
        raise InputError(Fault(f"{origin}: sha256", found, allowed, CHANGED))


def alike(one: Any, other: Any, tolerance: float) -> bool:
    """The same figures, under the same names and in the same order.

    >>> alike({"low": 1.0, "sizes": [2, None]}, {"low": 1.001, "sizes": [2, None]}, 0.01), alike({"low": 1.0}, {}, 0.01)
    (True, False)

    Args:
        one: table, list, number or anything else
        other: likewise
        tolerance: of numbers, relative to the larger one
    """
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(alike(one[name], other[name], tolerance) for name in one)
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(alike(*pair, tolerance) for pair in zip(one, other, strict=True))
    if type(one) in (int, float) and type(other) in (int, float):
        return math.isclose(one, other, rel_tol=tolerance)
    return bool(one == other)
