"""Comma- and tab-separated values with a line of column names."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import IO, Any

from fullstep.datasets.raw_file import opened
from fullstep.datasets.table import LARGEST_ROW_BYTES, Faults, Row, Table
from fullstep.errors import Fault, InputError


class CsvTable(Table):
    """Rows that may go over several lines where a field is quoted."""

    unit = "line"

    def __init__(self, name: str, delimiter: str) -> None:
        super().__init__(name)
        self._delimiter = delimiter

    def columns(self) -> list[str]:
        """The first line."""
        with self._records() as (records, _):
            return self._header(records)

    def rows(self, columns: Collection[str], faults: Faults) -> Iterator[Row]:
        """Every line after it; a field more or less than there are names is a fault."""
        with self._records() as (records, disk):
            size = max(1, os.fstat(disk.fileno()).st_size)
            names = self._header(records)
            while True:
                number = records.line_num + 1
                record = next(records, None)
                if record is None:
                    return
                if number % 256 == 0:
                    self.share_read = disk.tell() / size
                if len(record) == len(names):
                    yield Row(number, dict(zip(names, record, strict=True)))
                elif record:
                    found, allowed = f"{len(record)} field{'s' if len(record) > 1 else ''}", f"{len(names)}, one for each column"
                    faults.add(Fault(self.where(number), found, allowed, "Quote fields that hold the separator."))

    def _header(self, records: Any) -> list[str]:
        names: list[str] = next(islice(filter(None, records), 1), [])
        twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
        if twice:
            raise InputError(Fault(self.where(1), f'the column "{twice[0][:60]}" stands twice', "names that differ"))
        return names

    @contextmanager
    def _records(self) -> Iterator[tuple[Any, IO[bytes]]]:
        csv.field_size_limit(LARGEST_ROW_BYTES)
        with opened(self) as (source, disk):
            text = io.TextIOWrapper(source, encoding="utf-8-sig", newline="")
            records = csv.reader(text, delimiter=self._delimiter, strict=True)
            try:
                yield records, disk
            except csv.Error as error:
                found = f"no CSV: {str(error)[:120]}"
                raise InputError(Fault(self.where(max(1, records.line_num)), found, "fields that are quoted as a whole")) from None
            except UnicodeDecodeError as error:
                found = f"no UTF-8 text after this line (byte {error.object[error.start]:#04x})"
                raise InputError(Fault(self.where(max(1, records.line_num)), found, "UTF-8 text")) from None
            finally:
                text.detach()
