"""What a value of a record from outside may be. What does not fit is told with its place and what is allowed."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

from fullstep.job.refusal import describe

LARGEST = 2.0**63
"""of any number, as of what a mistaken program can ask for: sums of them stay finite"""
DEEPEST = 24
"""tables within tables where a record may hold any"""
LONGEST_TEXT = 64 * 1024
MOST_ROWS = 400_000


class Mismatch(ValueError):  # noqa: N818 - not an error of its own: it becomes a Fault
    """A value that does not have its form.

    Args:
        found: in words
        allowed: in words
    """

    def __init__(self, found: str, allowed: str) -> None:
        super().__init__(found)
        self.found, self.allowed = found, allowed
        self.place: list[str] = []
        """from the record down to the value, last part first"""

    def inside(self, part: str) -> Mismatch:
        """The same, with the part that it lies in."""
        self.place.append(part)
        return self

    @property
    def where(self) -> str:
        """Such as ``ranks[0].steps.rows[2]``; empty: the record itself."""
        return "".join(reversed(self.place)).removeprefix(".")


class Form(ABC):
    """What one value may be."""

    words: str
    """what is allowed, for messages and for the docs"""

    @abstractmethod
    def check(self, value: Any) -> None:
        """Returns where it fits.

        Raises:
            Mismatch: it does not
        """

    def refuse(self, value: Any) -> Mismatch:
        """The value as a mismatch."""
        return Mismatch(describe(value), self.words)


class Whole(Form):
    """A whole number."""

    def __init__(self, least: float = 0) -> None:
        self._least = least
        self.words = "a whole number" if least == -LARGEST else f"a whole number from {least:g} on"

    def check(self, value: Any) -> None:
        if type(value) is not int or not self._least <= value <= LARGEST:
            raise self.refuse(value)


class Number(Form):
    """A finite number."""

    def __init__(self, least: float = 0.0) -> None:
        self._least = least
        self.words = f"a finite number from {least:g} on"

    def check(self, value: Any) -> None:
        if type(value) not in (int, float) or not self._least <= value <= LARGEST:  # NaN is no number from anything on
            raise self.refuse(value)


class Text(Form):
    """A text, or one of a few words, or one of a pattern."""

    def __init__(self, words: Sequence[str] = (), pattern: str = "", said: str = "text") -> None:
        self._among, self._pattern = tuple(words), re.compile(pattern) if pattern else None
        self.words = ", ".join(words) if words else said

    def check(self, value: Any) -> None:
        fits = type(value) is str and len(value) <= LONGEST_TEXT and (not self._among or value in self._among)
        if not fits or (self._pattern is not None and self._pattern.fullmatch(value) is None):
            raise self.refuse(value)


class OrNull(Form):
    """The same, or null where it is not known."""

    def __init__(self, form: Form) -> None:
        self.form = form
        self.words = f"{form.words}, or null"

    def check(self, value: Any) -> None:
        if value is not None:
            try:
                self.form.check(value)
            except Mismatch as mismatch:
                mismatch.allowed += "" if mismatch.place else ", or null"
                raise


class ListOf(Form):
    """A list whose entries have one form."""

    def __init__(self, form: Form, most: int, words: str) -> None:
        self.form, self._most, self.words = form, most, words

    def check(self, value: Any) -> None:
        if type(value) is not list or len(value) > self._most:
            raise Mismatch(describe(value), f"{self.words}, at most {self._most:,}")
        for index, entry in enumerate(value):
            try:
                self.form.check(entry)
            except Mismatch as mismatch:
                raise mismatch.inside(f"[{index}]") from None


class Field(NamedTuple):
    """A key of a table, or a column."""

    name: str
    form: Form
    meaning: str


class Table(Form):
    """A table with exactly these keys."""

    words = "a table"

    def __init__(self, *fields: Field) -> None:
        self.fields = fields
        self._forms = {field.name: field.form for field in fields}

    def check(self, value: Any) -> None:
        if type(value) is not dict:
            raise self.refuse(value)
        require_keys(value, tuple(self._forms))
        for name, form in self._forms.items():
            try:
                form.check(value[name])
            except Mismatch as mismatch:
                raise mismatch.inside(f".{name}") from None


class Columns(Form):
    """Many samples of a few figures each: names of columns, then rows."""

    words = "columns and rows"

    def __init__(self, *fields: Field) -> None:
        self.fields = fields
        self.names = [field.name for field in fields]

    def check(self, value: Any) -> None:
        if type(value) is not dict:
            raise self.refuse(value)
        require_keys(value, ("columns", "rows"))
        if value["columns"] != self.names:
            raise Mismatch(f"other columns: {describe(value['columns'])}", ", ".join(self.names)).inside(".columns")
        rows = value["rows"]
        if type(rows) is not list or len(rows) > MOST_ROWS:
            raise Mismatch(describe(rows), f"a list of rows, at most {MOST_ROWS:,}").inside(".rows")
        for index, row in enumerate(rows):
            self._check_row(row, index)

    def _check_row(self, row: Any, index: int) -> None:
        if type(row) is not list or len(row) != len(self.names):
            raise Mismatch(describe(row), f"a list of {len(self.names)}").inside(f".rows[{index}]")
        for field, cell in zip(self.fields, row, strict=True):
            try:
                field.form.check(cell)
            except Mismatch as mismatch:
                raise mismatch.inside(f".rows[{index}].{field.name}") from None


class AnyTable(Form):
    """A table of plain values, not too deep; what its keys mean is told elsewhere."""

    words = "a table"

    def check(self, value: Any) -> None:
        if type(value) is not dict:
            raise self.refuse(value)
        _check_plain(value, DEEPEST)


def require_keys(table: dict[str, Any], names: Sequence[str]) -> None:
    """Returns where a table has these keys and no others.

    Raises:
        Mismatch: one is missing or unknown
    """
    missing = [name for name in names if name not in table]
    if missing:
        raise Mismatch("not there", "the key is required").inside(f".{missing[0]}")
    unknown = [name for name in table if name not in names]
    if unknown:
        raise Mismatch(f"an unknown key: {describe(unknown[0])}", ", ".join(names))


def _check_plain(value: Any, deeper: int) -> None:
    if value is None or type(value) is bool:
        return
    if type(value) is str and len(value) <= LONGEST_TEXT:
        return
    if type(value) is int and value.bit_length() <= 64:
        return
    if type(value) is float and math.isfinite(value):
        return
    if type(value) not in (dict, list) or not deeper:
        allowed = f"text of at most {LONGEST_TEXT:,} signs, finite numbers, lists and tables, at most {DEEPEST} deep"
        raise Mismatch(describe(value), allowed)
    for key, each in value.items() if type(value) is dict else enumerate(value):
        try:
            _check_plain(each, deeper - 1)
        except Mismatch as mismatch:
            raise mismatch.inside(f".{key[:40]}" if type(key) is str else f"[{key}]") from None
