"""JSON: an object a line (JSON Lines), or one array of objects."""

from __future__ import annotations

import codecs
import json
import os
import re
from collections.abc import Collection, Iterator
from json.decoder import JSONDecodeError
from typing import Any

from fullstep.datasets.raw_file import lines_of, opened, too_long
from fullstep.datasets.table import LARGEST_ROW_BYTES, Faults, Row, Table
from fullstep.errors import Fault, InputError

_CHUNK_BYTES = 2**20
_SIGN = re.compile(r"\S")
_LONGEST_SIGN = 16
"""no number, literal or escape that a piece of text cuts off is longer, but for a text or a number of many digits"""
_OBJECT = "a row as a JSON object"


class JsonLines(Table):
    """An object a line."""

    unit = "line"

    def rows(self, columns: Collection[str], faults: Faults) -> Iterator[Row]:
        """Every line that is not empty."""
        for number, line in lines_of(self):
            try:
                value = json.loads(line.decode("utf-8"))
            except (ValueError, RecursionError) as error:
                faults.add(Fault(self.where(number), _reason(error), f"{_OBJECT}, one a line", _remedy(line)))
                continue
            if isinstance(value, dict):
                yield Row(number, value)
            else:
                faults.add(Fault(self.where(number), _kind(value), f"{_OBJECT}, one a line"))


class JsonArray(Table):
    """One array of objects, of which one is in memory at a time."""

    unit = "row"

    def rows(self, columns: Collection[str], faults: Faults) -> Iterator[Row]:
        """Every element."""
        for number, value in enumerate(self._elements(), 1):
            if isinstance(value, dict):
                yield Row(number, value)
            else:
                faults.add(Fault(self.where(number), _kind(value), _OBJECT))

    def _elements(self) -> Iterator[Any]:
        decode = json.JSONDecoder().raw_decode
        number, after_element = 0, False
        with opened(self) as (source, disk):
            size = max(1, os.fstat(disk.fileno()).st_size)
            text = _Text(source, self.name)
            at = text.buffer.index("[") + 1
            while True:
                at = _first_sign(text.buffer, at)
                sign = text.buffer[at : at + 1]
                if sign == "]" and number and not after_element:
                    raise self._broken(JSONDecodeError("Illegal trailing comma", text.buffer, at), number + 1)
                if sign == "]":
                    self._ends_here(text, at + 1)
                    return
                if sign == "," and after_element:
                    at, after_element = at + 1, False
                    continue
                try:
                    if sign and after_element:
                        raise JSONDecodeError("Expecting ',' delimiter", text.buffer, at)
                    value, end = decode(text.buffer, at)
                except (ValueError, RecursionError) as error:
                    if not isinstance(error, JSONDecodeError) or not _may_be_cut(error, len(text.buffer)):
                        raise self._broken(error, number + 1) from None
                    if len(text.buffer) - at > LARGEST_ROW_BYTES:
                        raise too_long(self.where(number + 1)) from None
                    if not text.more(at):
                        raise self._broken(error, number + 1, ended=_is_open(error) or not text.buffer[error.pos - at :].strip()) from None
                    at = 0
                    continue
                number, at, after_element = number + 1, end, True
                self.share_read = disk.tell() / size
                yield value

    def _ends_here(self, text: _Text, at: int) -> None:
        """Nothing but white space may follow: two arrays in one file would lose the second without a word."""
        while True:
            rest = text.buffer[at:].lstrip()
            if rest:
                remedy = "Several arrays are several files, or write an object a line into a .jsonl file."
                raise InputError(Fault(self.name, f"more text after the array's ]: {rest[:40]!r}", "one array of JSON objects", remedy))
            if not text.more(len(text.buffer)):
                return
            at = 0

    def _broken(self, error: Exception, number: int, ended: bool = False) -> InputError:
        found = "the file ends before its array does" if ended else _reason(error)
        return InputError(Fault(self.where(number), found, "an array of JSON objects that is closed by ]"))


class _Text:
    """A file's text as far as it is needed: more is put behind what is not used up."""

    def __init__(self, source: Any, name: str) -> None:
        self._source, self._name = source, name
        self._decode = codecs.getincrementaldecoder("utf-8-sig")().decode
        self.buffer = ""
        while "[" not in self.buffer and self.more(0):
            pass

    def more(self, used: int) -> bool:
        """Drops what is used up and reads on, more at a time the longer the rest is; False: there is nothing more."""
        rest = self.buffer[used:]
        raw = self._source.read(max(_CHUNK_BYTES, len(rest)))
        try:
            self.buffer = rest + self._decode(raw, final=not raw)
        except UnicodeDecodeError as error:
            raise InputError(Fault(self._name, _reason(error), "UTF-8 text")) from None
        return bool(raw)


def _first_sign(text: str, at: int) -> int:
    """Where the first sign stands that is no space, from here on; the end where there is none."""
    found = _SIGN.search(text, at)
    return found.start() if found else len(text)


def _is_open(error: JSONDecodeError) -> bool:
    """A text that does not end."""
    return error.msg.startswith("Unterminated string")


def _may_be_cut(error: JSONDecodeError, length: int) -> bool:
    """Whether more text may mend it: it stands at the very end, or a text is open."""
    return _is_open(error) or error.pos >= length - _LONGEST_SIGN


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return f"no UTF-8 text (byte {error.start + 1})"
    if isinstance(error, JSONDecodeError):
        return f"no JSON: {error.msg} (column {error.colno})"
    return f"no JSON that can be read: {str(error)[:80]}"


def _kind(value: Any) -> str:
    names = {list: "a list", str: "a text", bool: "true or false", int: "a number", float: "a number", type(None): "null"}
    return names.get(type(value), "something else")


def _remedy(line: bytes) -> str:
    return "An object that goes over several lines has to stand in an array: [ ... ]" if line.strip() == b"{" else ""
