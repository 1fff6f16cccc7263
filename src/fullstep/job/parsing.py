"""TOML, JSON and YAML into plain tables, strictly: no duplicates, no tags, no aliases, no NaN, no deep nesting, no code."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from fullstep.errors import Fault, InputError, KeyTwiceError, unique_keys
from fullstep.job.worksheet import Lines, no_lines, place

DEEPEST = 24
"""levels of tables and lists; a worksheet needs four"""
MOST_DOTS = 64
"""parts of one dotted TOML key"""

Parsed = tuple[Any, Lines]


def parse_json(text: str, origin: str) -> Parsed:
    """A JSON text. A key that stands twice is refused; NaN and Infinity are left to the check of their key.

    >>> parse_json('{"schema": 1}', "x.json")[0]
    {'schema': 1}
    """
    text = text.removeprefix("\ufeff")
    try:
        return json.loads(text, object_pairs_hook=unique_keys), _scan(text, _json_key)
    except json.JSONDecodeError as error:
        raise _syntax(origin, error.lineno, f"not JSON: {error.msg} (column {error.colno})", "JSON") from None
    except RecursionError:
        raise InputError(Fault(origin, "nested too deeply", f"at most {DEEPEST} levels")) from None
    except KeyTwiceError as error:
        raise InputError(Fault(origin, str(error), "every key once")) from None
    except ValueError:
        raise _long_number(origin) from None


def _long_number(origin: str) -> InputError:
    return InputError(Fault(origin, "a number of thousands of digits", "numbers below 10^18"))


def parse_toml(text: str, origin: str) -> Parsed:
    """A TOML text; tomllib itself refuses duplicates."""
    import tomllib  # noqa: PLC0415 - loaded for TOML only

    for run in re.finditer(r"[\w.\"' \t-]+", text):  # tomllib takes the square of a key's parts
        if run[0].count(".") > MOST_DOTS and sum(1 for part in run[0].split(".") if part.strip()) > MOST_DOTS:
            line = text.count("\n", 0, run.start()) + 1
            raise InputError(Fault(place(origin, line), "a key of very many parts", f"at most {MOST_DOTS} parts between dots"))
    try:
        return tomllib.loads(text), _scan(text, _toml_key)
    except RecursionError:
        raise InputError(Fault(origin, "nested too deeply", f"at most {DEEPEST} levels")) from None
    except ValueError as error:  # TOMLDecodeError, or a number of thousands of digits
        if "integer string conversion" in str(error):
            raise _long_number(origin) from None
        at = re.search(r"at line (\d+)", str(error))
        raise _syntax(origin, int(at[1]) if at else None, f"not TOML: {str(error)[:120]}", "TOML") from None


def parse_yaml(text: str, origin: str) -> Parsed:
    """A YAML text: plain tables, lists and values. Built from events, so that nothing in it can make an object or run."""
    from fullstep.job.yaml_events import table_from_yaml  # noqa: PLC0415 - PyYAML is loaded for YAML only

    return table_from_yaml(text, origin)


def parse_any(text: str, origin: str) -> Parsed:
    """A text of unknown format: what it looks like is tried first, and that one's fault is told when nothing reads it."""
    if text.lstrip()[:1] == "{":
        return parse_json(text, origin)
    looks_like_toml = re.search(r"^[ \t]*(\[\w+\]|[\w.\"-]+[ \t]*=)", text, re.MULTILINE) is not None
    order = (parse_toml, parse_yaml) if looks_like_toml else (parse_yaml, parse_toml)
    try:
        parsed = order[0](text, origin)
        if isinstance(parsed[0], dict):
            return parsed
        first = InputError(Fault(origin, "no table of keys", "a worksheet in TOML, YAML or JSON"))
    except InputError as error:
        first = error
    try:
        parsed = order[1](text, origin)
    except InputError:
        raise first from None
    if isinstance(parsed[0], dict):
        return parsed
    raise first


PARSERS: dict[str, Callable[[str, str], Parsed]] = {".toml": parse_toml, ".json": parse_json, ".yaml": parse_yaml, ".yml": parse_yaml}


def _syntax(origin: str, line: int | None, found: str, what: str) -> InputError:
    return InputError(Fault(place(origin, line), found, f"a worksheet in {what}"))


def _toml_key(word: str) -> str:
    return rf"^[ \t]*[\"']?{word}[\"']?[ \t]*="


def _json_key(word: str) -> str:
    return rf"\"{word}\"\s*:"


def _scan(text: str, key_pattern: Callable[[str], str]) -> Lines:
    """Finds keys by a simple search; used for messages only, so a miss costs a line number and no more."""
    is_toml = key_pattern is _toml_key

    def line_of(section: str, name: str = "", /) -> int | None:
        start, end = 0, len(text)
        if is_toml:
            header = re.search(rf"^[ \t]*\[\s*{re.escape(section)}\s*\]", text, re.MULTILINE)
            if header is not None:
                start = header.start()
                following = re.compile(r"^[ \t]*\[", re.MULTILINE).search(text, header.end())
                end = following.start() if following else end
            elif name:
                dotted = re.search(rf"^[ \t]*{re.escape(section)}[ \t]*\.[ \t]*{re.escape(name)}[ \t]*=", text, re.MULTILINE)
                return text.count("\n", 0, dotted.start()) + 1 if dotted else None
            if header is not None and not name:
                return text.count("\n", 0, start) + 1
        elif name:
            opening = re.search(key_pattern(re.escape(section)), text)
            if opening is None:
                return None
            start = opening.end()
        found = re.compile(key_pattern(re.escape(name or section)), re.MULTILINE).search(text, start, end)
        return text.count("\n", 0, found.start()) + 1 if found else None

    return line_of if "\n" in text else no_lines
