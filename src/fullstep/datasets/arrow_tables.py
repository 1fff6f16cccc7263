"""Parquet and Arrow, by way of pyarrow, which is loaded when such a file is read. Batches, never the whole file."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from fullstep.datasets.raw_file import unreadable
from fullstep.datasets.table import Faults, Row, Table
from fullstep.errors import Fault, InputError

_BATCH_ROWS = 1000
TOKEN_IDS = "input_ids"


def library(name: str, used_by: str, purpose: str) -> Any:
    """An optional library of the extra ``data``, imported now.

    Args:
        name: of its module, which may lie inside the library
        used_by: the file that needs it, for the message
        purpose: what it would do

    Raises:
        InputError: it is not installed
    """
    root = name.partition(".")[0]
    if find_spec(root) is None:
        raise InputError(Fault(used_by, f"{root} is not installed", f"{root}, {purpose}", "pip install 'fullstep[data]'"))
    return import_module(name)


class _Batched(Table):
    """A file whose rows come in batches of columns."""

    unit = "row"

    def rows(self, columns: Collection[str], faults: Faults) -> Iterator[Row]:
        """Every row, with these columns alone."""
        number = 0
        with self._arrow_errors():
            for batch in self._batches(list(columns)):
                for start in range(0, batch.num_rows, _BATCH_ROWS):
                    values = _values(batch.slice(start, _BATCH_ROWS))
                    for row in zip(*values.values(), strict=True):
                        number += 1
                        yield Row(number, dict(zip(values, row, strict=True)))

    @abstractmethod
    def _batches(self, columns: list[str]) -> Iterator[Any]:
        """pyarrow's record batches; ``share_read`` follows."""

    @contextmanager
    def _arrow_errors(self) -> Iterator[None]:
        arrow = library("pyarrow", self.name, "which reads Parquet and Arrow")
        try:
            yield
        except (arrow.ArrowException, OSError, ValueError, MemoryError) as error:  # a damaged file is an OSError or a ValueError
            raise unreadable(self.name, error) from None


class Parquet(_Batched):
    """A Parquet file."""

    def columns(self) -> list[str]:
        """As its schema says."""
        with self._arrow_errors(), self._file() as file:
            return list(file.schema_arrow.names)

    def _batches(self, columns: list[str]) -> Iterator[Any]:
        with self._file() as file:
            rows, total = 0, max(1, file.metadata.num_rows)
            for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=columns):
                rows += batch.num_rows
                self.share_read = rows / total
                yield batch

    def _file(self) -> Any:
        return library("pyarrow.parquet", self.name, "which reads Parquet").ParquetFile(self.name, memory_map=True)


class Arrow(_Batched):
    """Arrow's stream format, as the library datasets writes it, or its file format."""

    def columns(self) -> list[str]:
        """As its schema says."""
        with self._arrow_errors(), self._source() as source:
            return list(self._reader(source).schema.names)

    def _batches(self, columns: list[str]) -> Iterator[Any]:
        with self._source() as source:
            reader = self._reader(source)
            stream = hasattr(reader, "read_next_batch")
            total = max(1, source.size() if stream else reader.num_record_batches)
            for number, batch in enumerate(reader if stream else map(reader.get_batch, range(total)), 1):
                self.share_read = (source.tell() if stream else number) / total
                chosen = batch.select(columns)
                chosen.validate(full=True)  # offsets that lead out of the file would end the process
                yield chosen

    def _source(self) -> Any:
        return library("pyarrow", self.name, "which reads Arrow").memory_map(self.name)

    def _reader(self, source: Any) -> Any:
        ipc = library("pyarrow.ipc", self.name, "which reads Arrow")
        magic = source.read(6)
        source.seek(0)
        return ipc.open_file(source) if magic == b"ARROW1" else ipc.open_stream(source)


def _values(batch: Any) -> dict[str, list[Any]]:
    """Columns of a batch as lists. Token ids without a mask stand as a range of their length: nobody needs the ids."""
    lengths_alone = "attention_mask" not in batch.schema.names
    return {
        name: _lengths(column) if name == TOKEN_IDS and lengths_alone else column.to_pylist()
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    }


def _lengths(column: Any) -> list[Any]:
    types = import_module("pyarrow.types")
    if not (types.is_list(column.type) or types.is_large_list(column.type)) or not types.is_integer(column.type.value_type):
        values: list[Any] = column.to_pylist()
        return values
    lengths = import_module("pyarrow.compute").list_value_length(column).to_pylist()
    return [None if length is None else range(length) for length in lengths]
