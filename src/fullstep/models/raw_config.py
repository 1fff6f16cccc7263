"""The config that a worksheet means, as its class in transformers reads it, whether or not the formulas know its type."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fullstep.errors import Fault, InputError
from fullstep.models.catalogue import config_by_name
from fullstep.models.config import read_config


def model_config(section: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """The Hugging Face config that a worksheet's section ``model`` means, and what to call the model.

    Args:
        section: ``config`` (a path, or a table of keys) goes before ``name`` (bundled, or any hub id where the extra ``hub`` is there)

    Raises:
        InputError: there is no such file or model, or what is there is no table of JSON values.

    >>> model_config({"config": {"model_type": "mamba"}})
    ({'model_type': 'mamba'}, 'the inline config')
    """
    config, name = section.get("config"), section.get("name") or ""
    if config is None:
        table, name = config_by_name(name)
    elif isinstance(config, str):
        table, name = read_config(config), name or config
    else:
        table, name = config, name or "the inline config"
    try:
        copy: dict[str, Any] = json.loads(json.dumps(table))
    except (TypeError, ValueError, RecursionError):
        allowed = "a table of JSON values: text, numbers, true, false, null, lists, tables"
        raise InputError(Fault("model config", "something that JSON cannot hold, or too deeply nested", allowed)) from None
    return copy, name
