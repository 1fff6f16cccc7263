"""What every format is read as: named columns and rows that come one by one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from fullstep.errors import Fault, InputError

MOST_FAULTS = 10
LARGEST_ROW_BYTES = 64 * 2**20
"""a row that is longer is taken for a file of another format"""


class Row(NamedTuple):
    """One row and where it begins: a line number or the how-many-th it is, from 1."""

    number: int
    values: Mapping[str, Any]


class Table(ABC):
    """One file of a data set."""

    unit: Literal["line", "row"]
    """what ``Row.number`` counts"""

    def __init__(self, name: str) -> None:
        self.name = name
        """the path as it was given"""
        self.share_read = 0.0
        """of the file, from 0 to 1"""

    def columns(self) -> list[str]:
        """Names of its columns; those of the first row where its format has no schema. Empty: there is no row.

        Raises:
            InputError: it cannot be read, or is not of its format
        """
        faults = Faults()
        for row in self.rows((), faults):
            return list(row.values)
        faults.raise_any()
        return []

    @abstractmethod
    def rows(self, columns: Collection[str], faults: Faults) -> Iterator[Row]:
        """Its rows with these columns and perhaps others. A row at fault goes to ``faults``, and the next one comes.

        Raises:
            InputError: no further row can be read
        """

    def where(self, number: int) -> str:
        """A place of this file, for messages and reports.

        The line is written as editors and compilers do it.
        """
        return f"{self.name}:{number}" if self.unit == "line" else f"{self.name}, row {number:,}"


class Faults:
    """Faults of rows, gathered until there are as many as one cares to read."""

    def __init__(self) -> None:
        self._found: list[Fault] = []

    def add(self, fault: Fault) -> None:
        """Keeps it.

        Raises:
            InputError: that was one too many
        """
        self._found.append(fault)
        if len(self._found) >= MOST_FAULTS:
            raise InputError(*self._found)

    def raise_any(self) -> None:
        """Returns when there is none.

        Raises:
            InputError: all that were found
        """
        if self._found:
            raise InputError(*self._found)

    def with_last(self, error: InputError) -> InputError:
        """The error that ended the reading, after all that was found before."""
        known = [fault for fault in error.faults if fault not in self._found]
        return InputError(*self._found, *known)
