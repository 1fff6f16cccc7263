"""``fullstep estimate --jsonl``: worksheets a line in, answers a line out, in order, in one process."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple, TextIO

from fullstep.errors import Fault, InputError
from fullstep.ledger import Answer
from fullstep.report.json import answer_as_dict, dump_line, error_as_dict

LONGEST_LINE_BYTES = 4 * 2**20
"""a worksheet is a few kilobytes; a longer line is answered with an error and skipped unread"""
_CHUNK_BYTES = 2**16


class Tally(NamedTuple):
    """How many lines were answered, at fault, and stumbled over by fullstep itself."""

    answered: int = 0
    at_fault: int = 0
    ours: int = 0


def answer_lines(source: BinaryIO, target: TextIO, answer: Callable[[object, str], Answer]) -> Tally:
    """Answers every line; what is there is answered and flushed before more is waited for, so that a dialogue works too.

    Args:
        source: one JSON object a line; empty lines are skipped
        target: one JSON object a line
        answer: sizes one worksheet, given what JSON held and what to call it in messages
    """
    gc.freeze()  # what start-up made stays: the collector need not look at it again
    gc.set_threshold(50_000)
    answered = at_fault = ours = 0
    number = 0
    for lines in _batches(source):
        replies = []
        for line in lines:
            number += 1
            if not line.strip():
                continue
            try:
                replies.append(dump_line(answer_as_dict(answer(_parsed(line, number), f"line {number}"))))
                answered += 1
            except InputError as error:
                replies.append(dump_line(error_as_dict(error)))
                at_fault += 1
            except Exception as error:  # noqa: BLE001 (one line's fault of ours must not stop the rest)
                replies.append(dump_line(error_as_dict(error)))
                ours += 1
        if replies:
            target.write("\n".join(replies) + "\n")
            target.flush()
    return Tally(answered, at_fault, ours)


def _parsed(line: bytes, number: int) -> object:
    where = f"line {number}"
    if len(line) > LONGEST_LINE_BYTES:
        raise InputError(Fault(where, f"more than {LONGEST_LINE_BYTES:,} bytes", "one worksheet a line"))
    try:
        return json.loads(line)
    except RecursionError:
        raise InputError(Fault(where, "JSON nested too deeply", "a worksheet: tables in tables, two deep")) from None
    except ValueError as error:
        raise InputError(Fault(where, f"not JSON ({str(error)[:120]})", "one worksheet as a JSON object a line")) from None


def _batches(source: BinaryIO) -> Iterator[list[bytes]]:
    """Whole lines as they arrive. Of a line that is too long only a prefix is kept, long enough to be recognised as such."""
    rest = b""
    while chunk := source.read1(_CHUNK_BYTES):  # type: ignore[attr-defined]
        *lines, tail = chunk.split(b"\n")
        if lines:
            lines[0] = _joined(rest, lines[0])
            rest = tail
            yield lines
        else:
            rest = _joined(rest, tail)
    if rest:
        yield [rest]


def _joined(rest: bytes, more: bytes) -> bytes:
    return rest if len(rest) > LONGEST_LINE_BYTES else rest + more
