"""One pass over a data set: of each row its number of tokens is kept, and nothing else."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from fullstep.datasets.forms import Content, content_of, form_of
from fullstep.datasets.table import Faults, Row, Table
from fullstep.datasets.tokens import Counter, overhead
from fullstep.errors import Fault, InputError
from fullstep.quantities import Bounds

_BATCH_ROWS = 512
_BATCH_CHARACTERS = 2**22
_LONGEST = 2**32 - 1


@dataclass(slots=True)
class Lengths:
    """Rows of a data set in their order."""

    tokens: array[int] = field(default_factory=lambda: array("I"))
    """of each row that is not empty; likely where they are not exact"""
    total: Bounds = field(default_factory=lambda: Bounds.exact(0))
    """tokens of all rows"""
    empty_rows: int = 0
    other_parts: int = 0
    """images and the like, which are not counted"""
    units: int = 0
    """what the counter counted: tokens, or bytes"""
    messages: int = 0
    ended_rows: int = 0
    """rows that a token was added to that ends them"""
    longest_at: str = ""
    """where the longest row begins"""
    forms: dict[str, None] = field(default_factory=dict)
    """what was read, in words, in the order in which it was met"""
    _longest: int = -1

    def add(self, tokens: int, table: Table, number: int) -> None:
        """One more row."""
        if tokens > self._longest:
            self._longest, self.longest_at = tokens, table.where(number)
        self.tokens.append(min(tokens, _LONGEST))


def measure_lengths(tables: Sequence[Table], counter: Counter, column: str | None, say: Callable[[str], None] | None = None) -> Lengths:
    """The lengths of all rows of these files, one file after the other.

    Args:
        tables: the files
        counter: makes texts into tokens
        column: what is trained on; None: the first known form of columns
        say: is told how far one is

    Raises:
        InputError: rows at fault, ten at most, with file and line; or a file cannot be read on, or there is not one row
    """
    found = Lengths()
    for table in tables:
        faults = Faults()
        try:
            for batch in _batches(table, column, faults, found):
                _count(table, batch, counter, found)
                if say is not None:
                    say(f"{table.name}, {table.share_read:.0%}, {len(found.tokens):,} rows")
        except InputError as error:
            raise faults.with_last(error) from None
        faults.raise_any()
    if not found.tokens:
        empty = f"{found.empty_rows:,} rows, all empty" if found.empty_rows else "no row"
        names = ", ".join(table.name for table in tables)[:300] or "the data set"
        raise InputError(Fault(names, empty, "at least one row with something in it"))
    return found


def _batches(table: Table, column: str | None, faults: Faults, found: Lengths) -> Iterator[list[tuple[int, Content]]]:
    """Rows with something in them, as many at a time as are worth a call of the tokenizer."""
    names = table.columns()
    if not names:
        return
    form = form_of(names, column, table.name)
    found.forms[f"{form.name} ({' + '.join(name for name in form.columns if name in names)})"] = None
    rows = table.rows([name for name in form.columns if name in names], faults)
    batch: list[tuple[int, Content]] = []
    characters = 0
    for row in rows:
        content = content_of(form, row.values, "")
        if isinstance(content, Fault):
            faults.add(_placed(content, table, row))
        elif content.is_empty:
            found.empty_rows += 1
        else:
            batch.append((row.number, content))
            characters += sum(map(len, content.pieces))
            if len(batch) >= _BATCH_ROWS or characters >= _BATCH_CHARACTERS:
                yield batch
                batch, characters = [], 0
    if batch:
        yield batch


def _placed(fault: Fault, table: Table, row: Row) -> Fault:
    """The fault with the place of its row: places are made into text for rows at fault alone."""
    return Fault(table.where(row.number) + fault.where, fault.found, fault.allowed, fault.remedy)


def _count(table: Table, batch: list[tuple[int, Content]], counter: Counter, found: Lengths) -> None:
    units = iter(counter.count([piece for _, content in batch for piece in content.pieces]))
    per_message, row_end = overhead("tokens_per_message").value, overhead("tokens_per_row_end").value
    likely = counter.tokens_per_unit.likely
    low = high = 0.0
    for number, content in batch:
        counted = sum(islice(units, len(content.pieces)))
        ended = not (content.messages or content.tokens or counter.ends_rows)
        exact = content.tokens + (0 if content.tokens else counter.special_tokens) + ended * row_end.likely
        found.ended_rows += ended
        found.add(round(exact + likely * counted + per_message.likely * content.messages), table, number)
        found.units += counted
        found.messages += content.messages
        found.other_parts += content.other_parts
        low += exact + counter.tokens_per_unit.low * counted + per_message.low * content.messages
        high += exact + counter.tokens_per_unit.high * counted + per_message.high * content.messages
    made = sum(found.tokens[-len(batch) :])
    found.total += Bounds(min(low, made), made, max(high, made))  # rows are whole tokens, which matters where they are tiny
