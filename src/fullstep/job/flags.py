"""The worksheet's keys as flags of the command line, over a file or instead of one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from fullstep.errors import Fault, InputError
from fullstep.job.keys import BY_DOTTED, KEYS, Key
from fullstep.job.refusal import Refused
from fullstep.job.values import dotted_key


class Flag(NamedTuple):
    """One flag as a parser of arguments needs it."""

    flag: str
    """with its dashes: ``--micro-batch``"""
    dotted: str
    """the worksheet's key: ``batch.micro_batch``"""
    help: str
    metavar: str
    choices: tuple[str, ...]


def worksheet_flags() -> tuple[Flag, ...]:
    """A flag for every key but ``schema``: its name with dashes (after its section where two have it), or the table's own."""
    names = [key.name for key in KEYS]
    return tuple(Flag(_flag(key, names), key.dotted, _help(key), _metavar(key), key.choices) for key in KEYS if key.section)


def _flag(key: Key, names: list[str]) -> str:
    word = key.flag or (key.name if names.count(key.name) == 1 else f"{key.section}_{key.name}")
    return "--" + word.replace("_", "-")


def _help(key: Key) -> str:
    default = "" if key.default == "–" else f" (default: {key.default})"
    return f"{key.explanation}{default}".replace("%", "%%")


def _metavar(key: Key) -> str:
    words = {"boolean": "true|false", "integer": "N", "number": "X", "size": "SIZE", "count": "N", "names": "LIST", "keys": "KEYS"}
    return words.get(key.kind, key.name.upper())


def flag_overrides(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Values by key from (key, text) pairs, as flags give them: ``("layout.strategy", "ddp")``.

    >>> flag_overrides([("batch.micro_batch", "4"), ("method.targets", "q_proj,v_proj"), ("precision.compute", "bf16")])
    {'batch.micro_batch': 4, 'method.targets': ['q_proj', 'v_proj'], 'precision.compute': 'bf16'}

    Raises:
        InputError: a key that does not exist, with the nearest spelling.
    """
    values: dict[str, Any] = {}
    faults: list[Fault] = []
    for name, text in pairs:
        try:
            dotted = dotted_key(name)
        except Refused as refused:
            faults.append(Fault("flags", refused.found, refused.allowed, refused.remedy))
        else:
            values[dotted] = _value(BY_DOTTED[dotted], text)
    if faults:
        raise InputError(*faults)
    return values


def set_overrides(texts: Iterable[str]) -> dict[str, Any]:
    """The same from texts as ``--set`` takes them: ``layout.strategy=ddp``."""
    pairs: list[tuple[str, str]] = []
    faults: list[Fault] = []
    for text in texts:
        name, equals, value = text.partition("=")
        if equals and name.strip():
            pairs.append((name.strip(), value))
        else:
            faults.append(Fault("--set", f'"{text[:60]}"', "key=value, for example layout.strategy=ddp"))
    if faults:
        raise InputError(*faults)
    return flag_overrides(pairs)


def apply_overrides(mapping: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """A nested mapping with keys laid over it; not checked yet (``worksheet_from_mapping`` does that).

    A stated accumulation gives way to a new ``global_rows`` and the other way round, and a new ``model.name`` to the old config.
    """
    merged: dict[str, Any] = {name: dict(entry) if isinstance(entry, Mapping) else entry for name, entry in mapping.items()}
    for dotted, value in overrides.items():
        section, _, name = dotted.rpartition(".")
        if not section:
            merged[name] = value
            continue
        entries = merged.get(section)
        if not isinstance(entries, dict):
            entries = merged[section] = {}
        for rival in _GIVES_WAY.get(dotted, ()):
            if f"{section}.{rival}" not in overrides:
                entries.pop(rival, None)
        entries[name] = value
    return merged


_GIVES_WAY: dict[str, tuple[str, ...]] = {
    "model.name": ("config",),
    "batch.global_rows": ("accumulation",),
    "batch.accumulation": ("global_rows",),
    "data.tokens": ("examples", "steps"),
    "data.examples": ("tokens", "steps"),
    "data.steps": ("tokens", "examples"),
}


def _value(key: Key, text: str) -> Any:
    """A flag's text as the value it means; what cannot be read stays text, and the check says what is allowed."""
    word = text.strip()
    if key.kind == "config" and not word.startswith("{"):
        return os.path.abspath(os.path.expanduser(word)) if word else word  # noqa: PTH100, PTH111 - from where the command runs
    if key.kind in ("names", "keys") and not word.startswith(("[", '"', "'")):
        if key.name == "targets" and word.lower().replace("_", "-") == "all-linear":
            return word
        return [name.strip() for name in word.split(",") if name.strip()]
    if key.kind in ("choice", "version", "model_name", "gpu", "money"):
        return word
    if word.lower() in ("true", "false", "yes", "no", "on", "off"):
        return word.lower() in ("true", "yes", "on")
    import tomllib  # noqa: PLC0415 - a worksheet in a file may do without

    try:
        return tomllib.loads(f"value = {word}")["value"] if "\n" not in word and len(word) < 10_000 else word
    except (ValueError, RecursionError):
        return word
