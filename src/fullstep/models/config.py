"""A Hugging Face config, as a table of keys, to a model shape; and configs from files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any

from fullstep.errors import Fault, InputError, KeyTwiceError, UnsupportedError, unique_keys
from fullstep.evidence import Assumption
from fullstep.models.architecture import Architecture
from fullstep.models.architectures import ARCHITECTURES, TEXT_PARTS
from fullstep.models.build import SIZE_KEYS, build_shape
from fullstep.models.reader import ConfigReader, shown
from fullstep.models.shape import ModelShape

LARGEST_CONFIG_BYTES = 10**6
_LANGUAGE_PARTS = ("text_config", "llm_config")
_NEAR = 0.7
"""how alike two names of model types must be before one is offered for the other; below that it is noise"""


def supported_model_types() -> tuple[str, ...]:
    """The values of ``model_type`` that can be sized, in alphabetical order."""
    return tuple(sorted(ARCHITECTURES))


def shape_from_config(config: Mapping[str, Any], name: str = "") -> ModelShape:
    """The shape of the model that a Hugging Face config describes; keys that it leaves out have its class's defaults.

    Args:
        config: the keys of a ``config.json``; only ``model_type`` is required.
        name: what the user calls the model; it is kept in the shape.

    Raises:
        InputError: a key is missing, of the wrong type or out of range; all faults are in it.
        UnsupportedError: the model type is not covered.

    >>> shape_from_config({"model_type": "gpt2"}).parameters
    124439808
    """
    try:
        text = json.dumps(config if type(config) is dict else dict(config))
    except (TypeError, ValueError, RecursionError) as error:
        found = "too deeply nested" if isinstance(error, RecursionError) else str(error)[:80]
        raise InputError(Fault("model config", found, "a table of JSON values: text, numbers, true, false, null, lists, tables")) from None
    return _shape_from_text(text, name)


@lru_cache(maxsize=1024)
def _shape_from_text(text: str, name: str) -> ModelShape:
    try:
        config = json.loads(text)
    except (ValueError, RecursionError):
        raise InputError(Fault("model config", "numbers of thousands of digits or deep nesting", "a table of JSON values")) from None
    stated_type = config.get("model_type")
    model_type, part_of = stated_type, ""
    inner = _language_part(config)
    if inner is not None:
        model_type, part_of = inner.get("model_type") or stated_type, str(stated_type)
        shared = {key: config[key] for key in ("tie_word_embeddings",) if key in config}
        config = {**shared, **inner}
    if isinstance(model_type, str) and model_type in TEXT_PARTS:
        model_type, part_of = TEXT_PARTS[model_type], str(stated_type)
    architecture = ARCHITECTURES.get(model_type) if isinstance(model_type, str) else None
    if architecture is None:
        raise _unknown_type(model_type)
    shape = build_shape(config, architecture, name, part_of=part_of)
    return replace(shape, sizes_left_out=_sizes_left_out(config, architecture))


def _language_part(config: Mapping[str, Any]) -> dict[str, Any] | None:
    """The table in which a model that takes more than text has its language part; None where the config has none."""
    key = next((name for name in _LANGUAGE_PARTS if config.get(name) is not None), None)
    if key is None:
        return None
    inner = config[key]
    where = f"model config: {key}"
    if not isinstance(inner, dict) or not inner:
        found = "an empty table" if isinstance(inner, dict) else f"found {shown(inner)}"
        raise InputError(Fault(where, found, "a table with the keys of the language part", "Without one take the key out."))
    deeper = [name for name in _LANGUAGE_PARTS if inner.get(name) is not None]
    if deeper:
        raise InputError(Fault(f"{where}.{deeper[0]}", "a language part inside another one", "one level of it"))
    return inner


def _sizes_left_out(config: Mapping[str, Any], architecture: Architecture) -> tuple[Assumption, ...]:
    """Sizes that the config does not state, under the config's own names, with what its class takes for them."""
    reader = ConfigReader(config, architecture)
    keys = [*SIZE_KEYS, architecture.feed_forward.width, "head_dim", "tie_word_embeddings"]
    if architecture.experts is not None:
        keys += [architecture.experts.count, architecture.experts.per_token, architecture.experts.width]
    unstated = [key for key in dict.fromkeys(keys) if not reader.stated(key) and reader.raw(key) is not None]
    why = "left out: default of the class"
    return tuple(Assumption(f"model.config.{architecture.keys.get(key, key)}", reader.raw(key), why) for key in unstated)


def _unknown_type(model_type: object) -> InputError:
    if not isinstance(model_type, str) or not model_type:
        found = "missing" if model_type is None else f"found {shown(model_type)}"
        return InputError(Fault("model config: model_type", found, "the name of a model type, for example llama"))
    known = supported_model_types()
    near = get_close_matches(model_type[:64].lower(), known, n=4, cutoff=_NEAR)
    return UnsupportedError(
        Fault(
            "model config: model_type",
            f"{shown(model_type)} is not among the {len(known)} model types that the formulas cover",
            f"nearest: {', '.join(near)}" if near else "a model type that is covered, for example llama or mistral",
            "`fullstep trace WORKSHEET` runs one step of the model's own class without a GPU. Or size the nearest supported type.",
        )
    )


def _why_unreadable(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "too deeply nested"
    if isinstance(error, KeyTwiceError):
        return str(error)
    if "integer string conversion" in str(error):
        return "a number of thousands of digits"
    return f"cannot be read: {str(error)[:120]}"


def read_config(path: str | Path) -> dict[str, Any]:
    """The table in a ``config.json``: the file itself or the folder that it is in.

    Raises:
        InputError: there is no such file, it is larger than 1 MB, or it is not a JSON table.
    """
    file = Path(path)
    try:
        if file.is_dir():
            file = file / "config.json"
        if file.exists() and not file.is_file():
            raise InputError(Fault(str(file)[:200], "a pipe, device or socket", "a config.json, or a folder with one in it"))
        if not file.is_file():
            raise InputError(Fault(str(file)[:200], "there is no such file", "a config.json, or a folder with one in it"))
        size_bytes = file.stat().st_size
        if size_bytes > LARGEST_CONFIG_BYTES:
            found = f"{size_bytes:,} bytes"
            raise InputError(Fault(str(file)[:200], found, f"at most {LARGEST_CONFIG_BYTES:,} bytes", "Is this a config.json?"))
        config = json.loads(file.read_text(encoding="utf-8-sig"), object_pairs_hook=unique_keys)
    except (OSError, RecursionError, ValueError) as error:
        raise InputError(Fault(str(file)[:200], _why_unreadable(error), "a JSON file of at most 1 MB")) from None
    if not isinstance(config, dict):
        raise InputError(Fault(str(file)[:200], f"holds {shown(config)}", "a table of keys, as a config.json is"))
    return config
