"""Is this value what its key allows? One check per kind of key, each returning the value in its one canonical form."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from fullstep.job.keys import BY_DOTTED, KEYS, Key, allowed_text
from fullstep.job.refusal import Refused, describe, did_you_mean
from fullstep.quantities import GB, GIB, SizeError, parse_size_bytes

SHORT_NAMES: dict[str, str] = {
    "bf16": "bfloat16", "fp16": "float16", "half": "float16", "fp32": "float32", "float": "float32", "float8": "fp8",
}  # fmt: skip
UNIT_BYTES = {"bytes": 1, "GiB": GIB, "GB": GB}
MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}(?:/[A-Za-z0-9._-]{1,96})?\Z")
TIMES = re.compile(r"([0-9]{1,5}) ?[x×*] ?(.*)\Z", re.ASCII)
VERSION = re.compile(r"v?([0-9]{1,6}(?:\.[0-9]{1,6}){0,4}[A-Za-z0-9.+-]{0,30})\Z")
AMOUNT = re.compile(r"[0-9]{1,13}(?:\.[0-9]{1,6})?\Z")
LONGEST_TEXT = 4096
MOST_NAMES = 512
DEEPEST_CONFIG = 16


Check = Callable[[Any], Any]


def _wrong(key: Key, value: object, remedy: str = "") -> Refused:
    if not remedy and isinstance(value, str):
        if key.kind in ("integer", "number", "size", "count") and value.strip().replace(".", "", 1).isdigit():
            remedy = "Write it without quotes."
        elif value.lower() in ("true", "false"):
            remedy = f"Write {value.lower()} without quotes."
        else:
            remedy = did_you_mean(value, key.choices + key.uncovered)
    return Refused(describe(value), allowed_text(key), remedy)


def _choice(key: Key) -> Check:
    table: dict[str, str] = {choice: choice for choice in key.choices + key.uncovered}
    table.update({short: name for short, name in SHORT_NAMES.items() if name in table and short not in table})

    def check(value: Any) -> Any:
        if type(value) is str:
            found = table.get(value) or table.get(value.strip().lower().replace("-", "_"))
            if found is not None:
                return found
        raise _wrong(key, value)

    return check


def _integer(key: Key) -> Check:
    low, high = key.low, key.high

    def check(value: Any) -> Any:
        if type(value) is int and low <= value <= high:
            return value
        if type(value) is float and low <= value <= high and value.is_integer():
            return int(value)
        raise _wrong(key, value)

    return check


def _number(key: Key) -> Check:
    low, high = key.low, key.high
    refused = {end for end, is_open in ((low, key.low_open), (high, key.high_open)) if is_open}

    def check(value: Any) -> Any:
        if (type(value) is int or type(value) is float) and low <= value <= high and value not in refused:
            return value
        raise _wrong(key, value)

    return check


def _boolean(key: Key) -> Check:
    def check(value: Any) -> Any:
        if value is True or value is False:
            return value
        raise _wrong(key, value)

    return check


def _version(key: Key) -> Check:
    def check(value: Any) -> Any:
        if type(value) is str and len(value) < 64:
            match = VERSION.match(value.strip())
            if match is not None:
                return match[1]
        remedy = "Write it in quotes: 4.50 as a number would read 4.5." if isinstance(value, (int, float)) else ""
        raise _wrong(key, value, remedy)

    return check


def _names(key: Key) -> Check:
    all_linear = key.name == "targets"

    def check(value: Any) -> Any:
        if type(value) is str and all_linear and value.strip().lower().replace("_", "-") == "all-linear":
            return "all-linear"
        if isinstance(value, (list, tuple)) and len(value) <= MOST_NAMES:
            for name in value:
                if type(name) is not str or not 0 < len(name) <= 200:
                    raise Refused(f"a list with {describe(name)} in it", allowed_text(key))
            return tuple(value)
        raise _wrong(key, value, f'Write a list: ["{value[:40]}"].' if type(value) is str and value else "")

    return check


def _size(key: Key) -> Check:
    low, high, unit = key.low, key.high, UNIT_BYTES[key.unit]
    whole = key.unit == "bytes"

    def check(value: Any) -> Any:
        if type(value) is str:
            try:
                size_bytes = parse_size_bytes(value)
            except (SizeError, OverflowError) as error:
                raise Refused(describe(value), allowed_text(key), f"{error}."[:300] if isinstance(error, SizeError) else "") from None
            value = size_bytes if whole else size_bytes / unit
        if (type(value) is int or type(value) is float) and low < value <= high and not (whole and value != int(value)):
            return int(value) if whole else value
        raise _wrong(key, value)

    return check


def _money(key: Key) -> Check:
    def check(value: Any) -> Any:
        if type(value) is str and AMOUNT.match(value.strip()):
            return value.strip()
        if type(value) is int and 0 <= value <= key.high:
            return str(value)
        if type(value) is float and 0 <= value <= key.high:
            return f"{value:.6f}".rstrip("0").rstrip(".")
        raise _wrong(key, value)

    return check


def _keys(key: Key) -> Check:
    def check(value: Any) -> Any:
        if not isinstance(value, (list, tuple)) or len(value) > MOST_NAMES:
            raise _wrong(key, value)
        return tuple(dotted_key(name, allowed_text(key)) for name in value)

    return check


def dotted_key(name: object, allowed: str = "a worksheet key, like layout.strategy") -> str:
    """The full name of a key that is given in full, or by a last part that only one section has.

    >>> dotted_key("strategy"), dotted_key("batch.micro_batch")
    ('layout.strategy', 'batch.micro_batch')
    """
    if type(name) is not str:
        raise Refused(describe(name), allowed)
    word = name.strip().replace("-", "_") if len(name) < 200 else name
    if word in BY_DOTTED:
        return word
    owners = [key.dotted for key in KEYS if key.name == word]
    if len(owners) == 1:
        return owners[0]
    remedy = f"Write {' or '.join(owners)}." if owners else did_you_mean(word, list(BY_DOTTED))
    raise Refused(f"{describe(name)}, which is {'in several sections' if owners else 'no key of the worksheet'}", allowed, remedy)


def _model_name(key: Key) -> Check:
    def check(value: Any) -> Any:
        if type(value) is str and MODEL_NAME.match(value) and ".." not in value:
            return value
        raise _wrong(key, value, "It looks like a path: put it under model.config." if _looks_like_path(value) else "")

    return check


def _looks_like_path(value: object) -> bool:
    return isinstance(value, str) and (value[:1] in tuple("/.~") or "\\" in value or value.count("/") > 1 or value[1:2] == ":")


def _config(key: Key) -> Check:
    def check(value: Any) -> Any:
        if type(value) is str and 0 < len(value) <= LONGEST_TEXT and "\0" not in value:
            return value
        if isinstance(value, Mapping):
            return frozen_table(value, DEEPEST_CONFIG, key)
        raise _wrong(key, value)

    return check


def frozen_table(value: Mapping[Any, Any], depth: int, key: Key) -> dict[str, Any]:
    """A copy of a table of plain values: text, numbers, true, false, null, lists and tables of them."""
    copy: dict[str, Any] = {}
    for name, entry in value.items():
        if type(name) is not str:
            raise Refused(f"a table with the key {describe(name)}", allowed_text(key), "Keys of a config are text.")
        copy[name] = entry if type(entry) in (str, bool) else _frozen(entry, depth, key)
    return copy


def _frozen(value: Any, depth: int, key: Key) -> Any:
    if value is None or type(value) in (str, bool):
        return value
    if type(value) is int or type(value) is float:
        if -(10**18) <= value <= 10**18:
            return value
        if type(value) is float and math.isfinite(value):
            return value
        raise Refused(f"a table with {describe(value)} in it", allowed_text(key), "Numbers of a config are finite and below 10^18.")
    if depth == 0:
        raise Refused(f"tables nested more than {DEEPEST_CONFIG} deep", allowed_text(key))
    if isinstance(value, Mapping):
        return frozen_table(value, depth - 1, key)
    if isinstance(value, (list, tuple)):
        return tuple(_frozen(entry, depth - 1, key) for entry in value)
    raise Refused(f"a table with {describe(value)} in it", allowed_text(key))


def _gpu(key: Key) -> Check:
    def check(value: Any) -> Any:
        if type(value) is str and 0 < len(value.strip()) <= 100 and value.isprintable():
            return value.strip()
        raise _wrong(key, value, "Put the number of GPUs under machine.gpus." if type(value) is int else "")

    return check


def _count(key: Key) -> Check:
    integer = _integer(key)

    def check(value: Any) -> Any:
        if type(value) is not str:
            return integer(value)
        match = TIMES.match(value.strip()[:200])
        if match is None:
            raise _wrong(key, value)
        integer(int(match[1]))
        if match[2][:1].isdigit():
            raise _wrong(key, value, "It may mean nodes and GPUs: write machine.nodes and machine.gpus.")
        return value.strip() if match[2] else int(match[1])

    return check


def _mixed(key: Key) -> Check:
    integer, choice, boolean = _integer(key), _choice(key), key.kind == "boolean_or_integer"

    def check(value: Any) -> Any:
        if type(value) is str and key.choices:
            return choice(value)
        if boolean and type(value) is bool:
            return value
        return integer(value)

    return check


_MAKERS: dict[str, Callable[[Key], Check]] = {
    "choice": _choice, "integer": _integer, "number": _number, "boolean": _boolean, "version": _version, "names": _names, "size": _size,
    "money": _money, "keys": _keys, "model_name": _model_name, "config": _config, "gpu": _gpu, "count": _count,
    "choice_or_integer": _mixed, "boolean_or_integer": _mixed,
}  # fmt: skip

CHECKS: dict[str, dict[str, Check]] = {}
"""section -> name -> check; the key without a section is under "" """
for _one in KEYS:
    CHECKS.setdefault(_one.section, {})[_one.name] = _MAKERS[_one.kind](_one)
