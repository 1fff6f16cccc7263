"""A worksheet whose every value has been checked: nested as in the file, nothing filled in, never changed in place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Protocol

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

    def sections(self) -> dict[str, Any]:
        """All that is stated, by section: a new table of the same read-only sections."""
        return dict(self._values)

    def section(self, name: str) -> Mapping[str, Any]:
        """The stated keys of one section; empty when nothing of it is stated."""
        values: Mapping[str, Any] = self._values.get(name, _EMPTY)
        return values

    def stated(self, dotted: str) -> Any:
        """The stated value of a key like ``layout.strategy``; None when it is left out."""
        section, _, name = dotted.rpartition(".")
        return self._values.get(section, _EMPTY).get(name) if section else self._values.get(name)

    @property
    def lines(self) -> Lines:
        """Finds the line of a key in the text that this was read from."""
        return self._lines

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
