"""From texts to numbers of tokens: by a local tokenizer, or estimated from bytes."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from fullstep.datasets.arrow_tables import library
from fullstep.errors import Fault, InputError
from fullstep.evidence import Evidence
from fullstep.quantities import Bounds

DATA = Path(__file__).parent / "data"
_TOKENIZER_FILE = "tokenizer.json"
_WITHOUT_IT = "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) of transformers writes it."


@dataclass(frozen=True, slots=True)
class Counter:
    """How texts are counted."""

    count: Callable[[Sequence[str]], list[int]]
    """units of each text: tokens, or bytes where there is no tokenizer"""
    tokens_per_unit: Bounds
    special_tokens: int
    """that the tokenizer puts around a row"""
    ends_rows: bool
    """one of them ends the row"""
    evidence: Evidence
    how: str
    """in words"""


class Overhead(NamedTuple):
    """A row of ``data/overheads.csv``."""

    value: Bounds
    evidence: str
    source: str


def overhead(what: str) -> Overhead:
    """What counts in rows beside their text.

    >>> overhead("tokens_per_row_end").value
    Bounds(low=1.0, likely=1.0, high=1.0)
    """
    return _overheads()[what]


def byte_counter() -> Counter:
    """Bytes of UTF-8, from which tokens are estimated.

    >>> byte_counter().count(["abc", "naïve"])
    [3, 6]
    """
    return Counter(_bytes_of, overhead("tokens_per_byte").value, 0, False, "estimated", "estimated from bytes: no tokenizer was given")


def tokenizer_counter(path: str) -> Counter:
    """Tokens by a ``tokenizer.json``, with its limits of length and its padding off.

    Args:
        path: the file, or a folder that has it

    Raises:
        InputError: it is not there or no tokenizer, or the library tokenizers is not installed
    """
    file = Path(path) / _TOKENIZER_FILE if os.path.isdir(path) else Path(path)  # noqa: PTH112 - also of a name that no file has
    if not os.path.isfile(file):  # noqa: PTH113
        found = f"no {_TOKENIZER_FILE} in this folder" if file != Path(path) else "there is no such file"
        if os.path.lexists(file):
            found = "a pipe, a device or a link to nothing" if file == Path(path) else f"{_TOKENIZER_FILE} in it is no file"
        raise InputError(Fault(f"--tokenizer {path}", found, f"a {_TOKENIZER_FILE}, or a folder that has one", _WITHOUT_IT))
    tokenizers = library("tokenizers", "--tokenizer", "which counts tokens")
    with _faults_of_the_tokenizer(str(file), f"a {_TOKENIZER_FILE} as the library tokenizers writes it"):
        tokenizer = tokenizers.Tokenizer.from_file(str(file))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        special = tokenizer.num_special_tokens_to_add(False)
        ends = bool(special) and tokenizer.encode("a").special_tokens_mask[-1] == 1

    def count(texts: Sequence[str]) -> list[int]:
        with _faults_of_the_tokenizer(str(file), "a tokenizer that knows every text"):
            encoded = tokenizer.encode_batch_fast([_whole(text) for text in texts], add_special_tokens=False)
            return [len(tokens) for tokens in encoded]

    return Counter(count, Bounds.exact(1), special, ends, "measured", f"counted with {file}")


def _bytes_of(texts: Sequence[str]) -> list[int]:
    return [len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass")) for text in texts]


def _whole(text: str) -> str:
    """Halves of surrogate pairs, which JSON allows and UTF-8 does not, as question marks."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode("utf-8")
    return text


@contextmanager
def _faults_of_the_tokenizer(where: str, allowed: str) -> Any:
    """Whatever the library raises is a fault of the file; a panic of its Rust code is not even an Exception."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        raise InputError(Fault(where, f"no tokenizer that works: {str(error)[:160]}", allowed, _WITHOUT_IT)) from None


@cache
def _overheads() -> Mapping[str, Overhead]:
    with (DATA / "overheads.csv").open(encoding="utf-8", newline="") as file:
        return {
            row["what"]: Overhead(Bounds(float(row["low"]), float(row["likely"]), float(row["high"])), row["evidence"], row["source"])
            for row in csv.DictReader(file)
        }
