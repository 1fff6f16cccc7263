"""The model shape that a worksheet means: its inline config, its config file, or a bundled or hub name, in this order."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from fullstep.models import ModelShape, model_config, shape_from_config

_KEPT_SHAPES = 256
_LONGEST_KEPT = 20_000
_shapes: dict[tuple[str, str], ModelShape] = {}


def shape_of(model: Mapping[str, Any]) -> ModelShape:
    """The shape for the section ``model``. Raises InputError or UnsupportedError of :mod:`fullstep.models`."""
    config = model.get("config")
    name = model.get("name")
    content = "" if config is None else _stamp(config) if isinstance(config, str) else repr(config)
    key = (name or "", content)
    shape = _shapes.get(key)
    if shape is None:
        made = shape_from_config(*model_config(model))
        if len(key[1]) > _LONGEST_KEPT:
            return made
        if len(_shapes) >= _KEPT_SHAPES:
            _shapes.clear()
        _shapes[key] = shape = made
    return shape


def _stamp(path: str) -> str:
    try:
        state = os.stat(path)  # noqa: PTH116 - one call for time and size
    except (OSError, ValueError):
        return path
    return f"{path}\0{state.st_mtime_ns}\0{state.st_size}"
