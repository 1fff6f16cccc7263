"""A worksheet whose every value has been checked: nested as in the file, nothing filled in, never changed in place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Protocol

from fullstep.errors import Fault, InputError
from fullstep.job.keys import BY_DOTTED, BY_SECTION, SECTIONS
from fullstep.job.values import CHECKS, TIMES, Refused, describe, did_you_mean, dotted_key

MOST_FAULTS = 40
_EMPTY: Mapping[str, Any] = MappingProxyType({})


class Lines(Protocol):
    """Finds the line of the text on which a key stands."""

    def __call__(self, section: str, name: str = "", /) -> int | None: ...


def no_lines(_section: str, _name: str = "", /) -> int | None:
    """Nothing is known about lines (a worksheet from flags or from a program)."""
    return None


class Worksheet(Mapping[str, Any]):
    """Section -> key -> value, checked and in canonical form. Make one with :func:`worksheet_from_mapping` or ``read_worksheet``."""

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


def worksheet_from_mapping(mapping: object, origin: str = "worksheet", lines: Lines = no_lines) -> Worksheet:
    """Checks every key and value of a nested mapping; all that is wrong is in one :class:`InputError`."""
    if not isinstance(mapping, Mapping):
        raise InputError(Fault(origin, f"{describe(mapping)} instead of a worksheet", "a table with the section model"))
    faults: list[Fault] = []
    values: dict[str, Any] = {}
    for section, entries in mapping.items():
        checks = CHECKS.get(section) if type(section) is str and section else None
        if checks is None:
            _outside_sections(section, entries, values, faults, origin, lines)
        elif isinstance(entries, Mapping):
            values[section] = _section(section, entries, faults, origin, lines)
        elif entries is not None:
            faults.append(Fault(place(origin, lines(section), section), describe(entries), _keys_of(section)))
        if len(faults) > MOST_FAULTS:
            break
    _count_in_name(values, faults, origin, lines)
    model = values.get("model")
    if not faults and not (model and ("name" in model or "config" in model)):
        faults.append(Fault(place(origin, None, "model"), "no model", "model.name or model.config", 'For example: name = "meta-llama/Llama-3.1-8B".'))
    raise_all(faults, origin)
    return Worksheet(values, origin, lines)


def raise_all(faults: list[Fault], origin: str) -> None:
    """Raises one error with all the faults (the first ones of very many); returns when there are none."""
    if len(faults) > MOST_FAULTS:
        faults = [*faults[:MOST_FAULTS], Fault(origin, "more faults after these", "", "Mend these first.")]
    if faults:
        raise InputError(*faults)


def _keys_of(section: str) -> str:
    return f"a table with the keys {', '.join(BY_SECTION[section])}"


def _outside_sections(name: object, value: object, values: dict[str, Any], faults: list[Fault], origin: str, lines: Lines) -> None:
    if name == "schema":
        try:
            values["schema"] = CHECKS[""]["schema"](value)
        except Refused as refused:
            faults.append(
                Fault(place(origin, lines("schema"), "schema"), refused.found, "1", "This version of fullstep reads schema 1 only; leave the key out or write 1.")
            )
        return
    owners = [key.dotted for key in BY_DOTTED.values() if key.name == name]
    word = name if isinstance(name, str) else ""
    remedy = f"It belongs in a section: {' or '.join(owners)}." if owners else did_you_mean(word, [*SECTIONS, "schema"])
    line = lines(word) if word else None
    faults.append(Fault(place(origin, line, word[:60] or describe(name)), "unknown section or key", f"schema, {', '.join(SECTIONS)}", remedy))


def _section(section: str, entries: Mapping[Any, Any], faults: list[Fault], origin: str, lines: Lines) -> dict[str, Any]:
    checks = CHECKS[section]
    checked: dict[str, Any] = {}
    for name, value in entries.items():
        check = checks.get(name) if type(name) is str else None
        try:
            if check is None:
                raise _unknown(section, name)
            checked[name] = check(value)
        except Refused as refused:
            word = name if isinstance(name, str) else describe(name)
            where = place(origin, lines(section, word), f"{section}.{word[:60]}")
            faults.append(Fault(where, refused.found, refused.allowed, refused.remedy))
            if len(faults) > MOST_FAULTS:
                break
    return checked


def _unknown(section: str, name: object) -> Refused:
    word = name[:60] if isinstance(name, str) else ""
    elsewhere = [key.dotted for key in BY_DOTTED.values() if key.name == word and key.section != section]
    remedy = did_you_mean(word, list(BY_SECTION[section]))
    if not remedy and elsewhere:
        remedy = f"There is {' and '.join(elsewhere)}."
    return Refused("unknown key", ", ".join(BY_SECTION[section]), remedy)


def _count_in_name(values: dict[str, Any], faults: list[Fault], origin: str, lines: Lines) -> None:
    """``8xH100-SXM`` under gpu or gpus says both; it must not contradict the other key."""
    machine = values.get("machine")
    if not machine:
        return
    for key, other in (("gpus", "gpu"), ("gpu", "gpus")):
        text = machine.get(key)
        match = TIMES.match(text) if type(text) is str else None
        if match is None or not match[2]:
            continue
        said: dict[str, Any] = {"gpus": int(match[1]), "gpu": match[2].strip()}
        stated = machine.get(other)
        if other in machine and type(stated) is type(said[other]) and stated != said[other]:
            where = place(origin, lines("machine", key), f"machine.{key}")
            faults.append(Fault(where, f"{describe(text)}, but machine.{other} is {describe(stated)}", "one of the two, or both alike"))
        elif not 1 <= said["gpus"] <= 1024:
            faults.append(Fault(place(origin, lines("machine", key), f"machine.{key}"), describe(text), "1 to 1,024 GPUs per node"))
        machine.update(said)


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
