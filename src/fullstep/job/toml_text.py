"""Worksheets written as TOML, which Python's own library only reads."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from fullstep.job.keys import BY_SECTION, KEYS, SECTIONS, Key, allowed_text

_BARE = re.compile(r"[A-Za-z0-9_-]+\Z")


def toml_value(value: Any) -> str:
    """One value in TOML.

    >>> toml_value({"model_type": "llama", "rope": [1, 2.5], "tied": True})
    '{ model_type = "llama", rope = [1, 2.5], tied = true }'
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        inside = ", ".join(f"{_key(name)} = {toml_value(entry)}" for name, entry in value.items() if entry is not None)
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, Iterable):
        return f"[{', '.join(toml_value(entry) for entry in value if entry is not None)}]"
    raise TypeError(f"{type(value).__name__} has no form in TOML")


def _key(name: str) -> str:
    return name if _BARE.match(name) else toml_value(name)


def worksheet_to_toml(worksheet: Mapping[str, Any]) -> str:
    """A worksheet (or its mapping) as TOML, sections in the order of the contract. null, which TOML lacks, is left out."""
    lines = [f"schema = {worksheet.get('schema', 1)}"]
    for section in SECTIONS:
        entries = worksheet.get(section)
        if entries:
            lines += ["", f"[{section}]"]
            lines += [f"{name} = {toml_value(entries[name])}" for name in BY_SECTION[section] if entries.get(name) is not None]
    return "\n".join(lines) + "\n"


def blank_worksheet() -> str:
    """A worksheet for ``fullstep init``: every key explained, all of them commented out but ``model.name``."""
    lines = ["# A worksheet for fullstep. Only the model is required; every default that is used is listed in the answer.", "schema = 1"]
    section = ""
    for key in KEYS:
        if key.section != section:
            section = key.section
            lines += ["", "", f"[{section}]  # {SECTIONS[section]}"]
        if section:
            lines += ["", *_explained(key)]
    return "\n".join(lines) + "\n"


def _explained(key: Key) -> list[str]:
    default = "" if key.default == "–" else f" Default: {key.default}."
    if (key.section, key.name) == ("model", "name"):
        return [f"# {key.explanation}.", f"{key.name} = {key.example}"]
    return [f"# {key.explanation}.{default}", f"# Allowed: {allowed_text(key)}.", f"# {key.name} = {_example(key)}"]


def _example(key: Key) -> str:
    """A value that the key allows: its default where that is one."""
    if key.example:
        return key.example
    if key.kind in ("boolean", "boolean_or_integer"):
        return "true" if key.default.startswith("true") else "false"
    if key.choices:
        return toml_value(key.default if key.default in key.choices else key.choices[0])
    try:
        float(key.default)
    except ValueError:
        return str(_some_number(key))
    return key.default


def _some_number(key: Key) -> int:
    usual = {"tokens": 2048, "GiB": 64, "GB": 500, "bytes": 26214400, "Gbit/s": 400, "hours": 24, "rows": 64, "steps": 1000}
    number = usual.get(key.unit, max(int(key.low), 1))
    return int(min(max(number, key.low), key.high))
