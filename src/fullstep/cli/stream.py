"""``fullstep estimate --jsonl``: worksheets a line in, answers a line out, in order, in one process."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple, TextIO

from fullstep.errors import Fault, InputError
from fullstep.job.raw_bytes import LARGEST_BYTES
from fullstep.ledger import Answer
from fullstep.report.json import answer_line, dump_line, error_as_dict

_CHUNK_BYTES = 2**16


class Tally(NamedTuple):
    """How many lines were answered, at fault, and stumbled over by fullstep itself."""

    answered: int = 0
    at_fault: int = 0
    ours: int = 0


def answer_lines(source: BinaryIO, target: TextIO, answer: Callable[[str, str], Answer]) -> Tally:
    """Answers every line; what is there is answered and flushed before more is waited for, so that a dialogue works too.

    Args:
        source: one JSON object a line; empty lines are skipped
        target: one JSON object a line
        answer: sizes one worksheet, given its text and what to call it in messages
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
            name = f"line {number}"
            try:
                replies.append(answer_line(answer(_text(line, name), name)))
                answered += 1
            except InputError as error:
                replies.append(dump_line(error_as_dict(error)))
                at_fault += 1
            except Exception as error:  # a fault of ours in one line must not stop the rest
                replies.append(dump_line(error_as_dict(error)))
                ours += 1
        if replies:
            target.write("\n".join(replies) + "\n")
            target.flush()
    return Tally(answered, at_fault, ours)


def _text(line: bytes, name: str) -> str:
    if len(line) > LARGEST_BYTES:
        raise InputError(Fault(name, f"more than {LARGEST_BYTES:,} bytes", "one worksheet a line"))
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(Fault(name, f"no UTF-8 text (byte {error.start})", "one worksheet as a JSON object a line")) from None


def _batches(source: BinaryIO) -> Iterator[list[bytes]]:
    """Whole lines as they arrive. Of a line that is too long only a prefix is kept, long enough to be recognised as such."""
    rest = b""
    while chunk := _chunk(source):
        *lines, tail = chunk.split(b"\n")
        if lines:
            lines[0] = _joined(rest, lines[0])
            rest = tail
            yield lines
        else:
            rest = _joined(rest, tail)
    if rest:
        yield [rest]


def _chunk(source: BinaryIO) -> bytes:
    try:
        chunk: bytes = source.read1(_CHUNK_BYTES)  # type: ignore[attr-defined]
    except OSError as error:
        raise InputError(Fault("standard input", f"cannot be read: {error.strerror or error}", "worksheets, a line each")) from None
    return chunk


def _joined(rest: bytes, more: bytes) -> bytes:
    return rest if len(rest) > LARGEST_BYTES else rest + more
