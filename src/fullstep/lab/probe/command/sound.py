"""Which lines of a training's processes are taken for what they say: the folder may come from elsewhere, and a kill may have cut one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_LARGEST = 2.0**63
_NUMBERS = ("seconds", "data", "at")
_WHOLE = ("rank", "world_size", "step", "host")
_SIZES = ("asked_bytes", "allocated_bytes", "reserved_bytes", "limit_bytes")
_MOST_DEVICES = 1024
_WORD = re.compile(r"[a-z0-9_ ]{1,60}")


def is_sound(line: Mapping[str, Any]) -> bool:
    """Numbers where numbers are read, none of them below 0 or infinite, words where words are read, tables of the right form.

    >>> is_sound({"step": 3, "seconds": 0.5}), is_sound({"step": 3.5}), is_sound({"seconds": float("inf")})
    (True, False, False)
    """
    return (
        all(_is_number(line[name]) for name in _NUMBERS if line.get(name) is not None)
        and all(_is_whole(line[name]) for name in _WHOLE if line.get(name) is not None)
        and all(_FORMS[name](line) for name in _FORMS if name in line)
    )


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= _LARGEST


def _is_whole(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _LARGEST


def _is_size(value: Any) -> bool:
    return value is None or _is_whole(value)


def _is_word(value: Any) -> bool:
    return type(value) is str and _WORD.fullmatch(value) is not None


def _has_step(line: Mapping[str, Any]) -> bool:
    return line["step"] is not None


def _has_memory(line: Mapping[str, Any]) -> bool:
    return type(line["memory"]) is list and all(map(_is_part, line["memory"]))


def _is_part(part: Any) -> bool:
    """Micro-batch, phase, and figures by device: of processors the number of a counted stretch, of GPUs four sizes."""
    if type(part) is not list or len(part) != 3 or type(part[2]) is not dict:
        return False
    figures = part[2].values()
    return _is_whole(part[0]) and _is_word(part[1]) and all(map(_are_sizes, figures))


def _are_sizes(sizes: Any) -> bool:
    if type(sizes) is not list or len(sizes) not in (1, 4):
        return False
    return all(map(_is_whole, sizes[:2])) and all(map(_is_size, sizes[2:]))


def _has_counted(line: Mapping[str, Any]) -> bool:
    """Peaks, and what was there at the end: below 0 where what was there before is given back."""
    rows = line["counted"]
    return type(rows) is list and all(
        type(row) is list and len(row) == 2 and _is_whole(row[0]) and type(row[1]) is int and abs(row[1]) <= _LARGEST for row in rows
    )


def _has_devices(line: Mapping[str, Any]) -> bool:
    devices = line["devices"]
    if type(devices) is not dict or len(devices) > _MOST_DEVICES:
        return False
    return all(type(each) is dict and type(each.get("name")) is str for each in devices.values())


def _has_ran_out(line: Mapping[str, Any]) -> bool:
    sizes = line["out_of_memory"]
    if type(sizes) is not dict or set(sizes) != set(_SIZES) or not all(map(_is_size, sizes.values())):
        return False
    return _is_whole(line.get("step")) and _is_word(line.get("phase"))


def _has_beside(line: Mapping[str, Any]) -> bool:
    return _is_word(line["beside"])


_FORMS = {
    "step": _has_step, "memory": _has_memory, "counted": _has_counted, "devices": _has_devices, "out_of_memory": _has_ran_out,
    "beside": _has_beside,
}  # fmt: skip
"""of lines that have such a key"""
