"""The model shape that a worksheet means: its inline config, its config file, or a bundled or hub name, in this order."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from fullstep.models import ModelShape

_KEPT_SHAPES = 256
_LONGEST_KEPT = 20_000
_shapes: dict[tuple[str, str], ModelShape] = {}


def shape_of(model: Mapping[str, Any]) -> ModelShape:
    """The shape for the section ``model``. Raises InputError or UnsupportedError of :mod:`fullstep.models`."""
    config = model.get("config")
    name = model.get("name")
    if config is None:
        return _kept((name or "", ""), lambda: _by_name(name or ""))
    if isinstance(config, str):
        return _kept((name or "", _stamp(config)), lambda: _by_path(config, name))
    return _kept((name or "", repr(config)), lambda: _by_config(config, name or "the inline config"))


def _kept(key: tuple[str, str], make: Any) -> ModelShape:
    shape = _shapes.get(key)
    if shape is None:
        made: ModelShape = make()
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


def _by_name(name: str) -> ModelShape:
    from fullstep.models import find_model  # noqa: PLC0415 - loads the bundled models only when one is asked for

    return find_model(name)


def _by_path(path: str, name: str | None) -> ModelShape:
    from fullstep.models import read_config, shape_from_config  # noqa: PLC0415

    return shape_from_config(read_config(path), name or path)


def _by_config(config: Mapping[str, Any], name: str) -> ModelShape:
    from fullstep.models import shape_from_config  # noqa: PLC0415

    return shape_from_config(dict(config), name)
