"""A data set in numbers, and the keys of a worksheet that follow from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from os import PathLike, fspath

from fullstep.datasets import (
    Counter,
    Cut,
    DataProfile,
    Distribution,
    Lengths,
    Packing,
    Padding,
    byte_counter,
    measure_lengths,
    open_tables,
    overhead,
    padding_share_in_order,
    padding_share_shuffled,
    padding_share_to_sequence,
    rows_packed_by_best_fit,
    rows_packed_by_cutting,
    tokenizer_counter,
)
from fullstep.evidence import Assumption

DEFAULT_SEQUENCE_TOKENS = 2048
"""as in a worksheet"""


def profile_data(
    paths: Sequence[str | PathLike[str]],
    *,
    tokenizer: str | PathLike[str] | None = None,
    column: str | None = None,
    sequence_tokens: int | None = None,
    micro_batch: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> DataProfile:
    """Reads a data set once, row by row, and says how long its rows are and what padding and packing make of them.

    Args:
        paths: files, or folders written by ``save_to_disk``; read one after the other
        tokenizer: a ``tokenizer.json`` or a folder that has one; None: tokens are estimated from bytes
        column: what is trained on (text, messages or token ids); None: the first known form of columns
        sequence_tokens: length of a row as in ``batch.sequence_tokens``; None: the worksheet's default
        micro_batch: rows of a padded batch; None: one
        progress: is told how far one is

    Raises:
        InputError: a file or a row is at fault, with its line; or a library is not installed
    """
    tables = open_tables([fspath(path) for path in paths])
    counter = byte_counter() if tokenizer is None else tokenizer_counter(fspath(tokenizer))
    lengths = measure_lengths(tables, counter, column, progress)
    sequence, batch = sequence_tokens or DEFAULT_SEQUENCE_TOKENS, micro_batch or 1
    rows = Distribution(lengths.tokens)
    cut = rows.cut_at(sequence)
    return DataProfile(
        files=tuple(table.name for table in tables),
        forms=tuple(lengths.forms),
        rows=rows.rows,
        empty_rows=lengths.empty_rows,
        other_parts=lengths.other_parts,
        evidence=counter.evidence if lengths.units else "measured",
        counted=counter.how if lengths.units else "counted: the rows hold token ids",
        tokens=lengths.total,
        mean=rows.tokens / rows.rows,
        median=rows.percentile(50),
        p90=rows.percentile(90),
        p99=rows.percentile(99),
        longest=rows.longest,
        longest_at=lengths.longest_at,
        histogram=tuple(rows.histogram()),
        sequence_tokens=sequence,
        micro_batch=batch,
        cut=Cut(rows.rows_longer_than(sequence), rows.tokens - cut.tokens),
        padding=_padding(lengths, rows, batch, sequence),
        packing=_packing(rows, cut, sequence),
        packed_keys={"data.tokens": rows.tokens, "batch.packed": True, "batch.sequence_tokens": sequence},
        padded_keys={
            "data.examples": rows.rows,
            "batch.packed": False,
            "batch.sequence_tokens": cut.longest,
            "batch.mean_sample_tokens": round(cut.tokens / cut.rows, 2),
        },
        assumptions=tuple(_assumptions(lengths, counter, sequence_tokens, micro_batch)),
    )


def _padding(lengths: Lengths, rows: Distribution, micro_batch: int, sequence_tokens: int) -> Padding:
    shuffled = padding_share_shuffled(rows, micro_batch, sequence_tokens)
    cut = rows.cut_at(sequence_tokens)
    return Padding(
        in_order_share=padding_share_in_order(lengths.tokens, micro_batch, sequence_tokens),
        shuffled_share=shuffled,
        to_sequence_share=padding_share_to_sequence(rows, sequence_tokens),
        mean_row_tokens=cut.tokens / cut.rows / (1 - shuffled),
    )


def _packing(rows: Distribution, cut: Distribution, sequence_tokens: int) -> Packing:
    by_cutting = rows_packed_by_cutting(rows, sequence_tokens)
    whole = rows_packed_by_best_fit(rows, sequence_tokens)
    return Packing(
        cut_rows=by_cutting,
        whole_rows=whole,
        whole_filled_share=cut.tokens / (whole * sequence_tokens),
        cut_saves_share=1 - by_cutting / rows.rows,
        whole_saves_share=1 - whole / rows.rows,
    )


def _assumptions(lengths: Lengths, counter: Counter, sequence_tokens: int | None, micro_batch: int | None) -> Iterator[Assumption]:
    """What is not in the data set but in its numbers."""
    used = {
        "tokens_per_byte": counter.evidence == "estimated" and lengths.units > 0,
        "tokens_per_message": lengths.messages > 0,
        "tokens_per_row_end": lengths.ended_rows > 0,
    }
    for what in (what for what, is_used in used.items() if is_used):
        known = overhead(what)
        yield Assumption(what, known.value.as_dict(), f"{known.evidence}: {known.source}")
    if sequence_tokens is None:
        yield Assumption("batch.sequence_tokens", DEFAULT_SEQUENCE_TOKENS, "not stated: the worksheet's default")
    if micro_batch is None:
        yield Assumption("batch.micro_batch", 1, "not stated: one row at a time, which needs no padding to the longest of a batch")
