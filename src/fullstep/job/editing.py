"""Changes to a worksheet, as a search makes them by the thousand: the original stays as it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from fullstep.errors import Fault, InputError
from fullstep.job.refusal import Refused
from fullstep.job.validation import worksheet_from_mapping
from fullstep.job.values import CHECKS, TIMES, dotted_key
from fullstep.job.worksheet import Worksheet, place


def edit(worksheet: Worksheet, changes: Mapping[str, Any]) -> Worksheet:
    """A copy with some keys changed; None takes a key out.

    >>> before = worksheet_from_mapping({"model": {"name": "gpt2"}, "layout": {"strategy": "fsdp"}})
    >>> after = edit(before, {"layout.strategy": "ddp"})
    >>> before.stated("layout.strategy"), after.stated("layout.strategy")
    ('fsdp', 'ddp')

    Raises:
        InputError: a key that does not exist, or a value that it does not allow.
    """
    values: dict[str, Any] = worksheet.sections()
    copied: dict[str, dict[str, Any]] = {}
    for dotted, value in changes.items():
        section, _, name = dotted.rpartition(".")
        check = CHECKS[section].get(name) if section in CHECKS else None
        if check is None or not section:
            _refuse_key(worksheet, dotted)
        if section not in copied:
            copied[section] = values[section] = dict(values.get(section, ()))
        if value is None:
            copied[section].pop(name, None)
            continue
        try:
            copied[section][name] = check(value)
        except Refused as refused:
            raise InputError(Fault(place(worksheet.origin, None, dotted), refused.found, refused.allowed, refused.remedy)) from None
    if "machine" in copied and _has_count(copied["machine"]):
        return worksheet_from_mapping(values, worksheet.origin, worksheet.lines)
    return Worksheet(values, worksheet.origin, worksheet.lines)


def _has_count(machine: Mapping[str, Any]) -> bool:
    """``8xH100-SXM``, which says two keys in one."""
    return isinstance(machine.get("gpus"), str) or TIMES.match(machine.get("gpu", "")) is not None


def _refuse_key(worksheet: Worksheet, dotted: str) -> NoReturn:
    try:
        full = dotted_key(dotted)
    except Refused as refused:
        where = place(worksheet.origin, None, str(dotted)[:80])
        raise InputError(Fault(where, refused.found, refused.allowed, refused.remedy)) from None
    raise InputError(Fault(place(worksheet.origin, None, dotted), "a key by a part of its name", full, "Write it in full."))
