"""A worksheet whose every value has been checked: nested as in the file, nothing filled in, never changed in place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Protocol

from fullstep.errors import Fault, InputError
from fullstep.job.refusal import Refused
from fullstep.job.values import CHECKS, dotted_key

_EMPTY: Mapping[str, Any] = MappingProxyType({})


class Lines(Protocol):
    """Finds the line of the text on which a key stands."""

    def __call__(self, section: str, name: str = "", /) -> int | None: ...


def no_lines(_section: str, _name: str = "", /) -> int | None:
    """Nothing is known about lines (a worksheet from flags or from a program)."""
    return None


class Worksheet(Mapping[str, Any]):
    """Section -> key -> value, checked and in canonical form. Made by ``worksheet_from_mapping`` or ``read_worksheet``."""

    __slots__ = ("_lines", "_values", "origin")

    def __init__(self, values: dict[str, Any] | None = None, origin: str = "worksheet", lines: Lines = no_lines) -> None:
        self._values = values if values is not None else {}
        self.origin = origin
        """what messages call it: the file's name, for example"""
        self._lines = lines

    def __getitem__(self, section: str) -> Any:
        value = self._values[section]
        return MappingProxyType(value) if isinstance(value, dict) else value

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Worksheet({self._values!r}, origin={self.origin!r})"

    def section(self, name: str) -> Mapping[str, Any]:
        """The stated keys of one section; empty when nothing of it is stated."""
        values: Mapping[str, Any] = self._values.get(name, _EMPTY)
        return values

    def stated(self, dotted: str) -> Any:
        """The stated value of a key like ``layout.strategy``; None when it is left out."""
        section, _, name = dotted.rpartition(".")
        return self._values.get(section, _EMPTY).get(name) if section else self._values.get(name)

    def where(self, dotted: str) -> str:
        """File, line and key as far as known, for a fault."""
        section, _, name = dotted.rpartition(".")
        return place(self.origin, self._lines(section, name) if section else self._lines(name), dotted)

    def as_dict(self) -> dict[str, Any]:
        """A copy in plain dicts and lists, for JSON and for changing."""
        copy: dict[str, Any] = _plain(self._values)
        return copy


def place(origin: str, line: int | None, key: str = "") -> str:
    """Where something stands: ``job.toml:12: layout.strategy``."""
    file = origin if line is None else f"{origin}:{line}"
    return f"{file}: {key}" if key else file


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, tuple):
        return [_plain(entry) for entry in value]
    return value


def edit(worksheet: Worksheet, changes: Mapping[str, Any]) -> Worksheet:
    """A copy with some keys changed, for example ``{"layout.strategy": "ddp"}``; None takes a key out. The original stays as it is."""
    values = dict(worksheet._values)
    copied: set[str] = set()
    for dotted, value in changes.items():
        section, _, name = dotted.rpartition(".")
        check = CHECKS.get(section, _EMPTY).get(name)
        if check is None or not section:
            return _edit_refused(worksheet, dotted)
        if section not in copied:
            values[section] = dict(values.get(section, _EMPTY))
            copied.add(section)
        if value is None:
            values[section].pop(name, None)
            continue
        try:
            values[section][name] = check(value)
        except Refused as refused:
            raise InputError(Fault(place(worksheet.origin, None, dotted), refused.found, refused.allowed, refused.remedy)) from None
    return Worksheet(values, worksheet.origin, worksheet._lines)


def _edit_refused(worksheet: Worksheet, dotted: str) -> Worksheet:
    try:
        full = dotted_key(dotted)
    except Refused as refused:
        raise InputError(Fault(place(worksheet.origin, None, str(dotted)[:80]), refused.found, refused.allowed, refused.remedy)) from None
    raise InputError(Fault(place(worksheet.origin, None, dotted), "a key by a part of its name", full, "Write it in full."))
