"""The bundled models: config, source and exact count by hub id; and any other hub id where the extra ``hub`` is installed."""

from __future__ import annotations

import json
import re
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from fullstep.errors import Fault, InputError
from fullstep.models.config import shape_from_config
from fullstep.models.shape import ModelShape

_FILE = Path(__file__).parent / "data" / "models.json"
_VERSION_SUFFIX = re.compile(r"-(?:v\d+(?:\.\d+)*|\d{4}|hf)\Z")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.\-]{0,95}(/[A-Za-z0-9_][\w.\-]{0,95})?\Z", re.ASCII)


class BundledModel(NamedTuple):
    """One model that fullstep knows by its hub id."""

    name: str
    """hub id"""
    parameters: int
    """exact count of all parameters"""
    source: str
    """public repository, path and commit of the table that holds the dimensions"""


@cache
def _table() -> dict[str, dict[str, Any]]:
    table: dict[str, dict[str, Any]] = json.loads(_FILE.read_text(encoding="utf-8"))
    return table


@cache
def bundled_models() -> tuple[BundledModel, ...]:
    """All bundled models in alphabetical order of their hub ids."""
    return tuple(BundledModel(name, entry["parameters"], entry["source"]) for name, entry in sorted(_table().items()))


def bundled_config(name: str) -> dict[str, Any]:
    """The config table of a bundled model, as its ``config.json`` states it.

    Raises:
        KeyError: the name is not exactly that of a bundled model.
    """
    config: dict[str, Any] = json.loads(json.dumps(_table()[name]["config"]))
    return config


def find_model(name: str) -> ModelShape:
    """The shape of a model by its hub id. Names are found as :func:`config_by_name` does.

    Raises:
        InputError: no such model, with the nearest names; or the hub did not give its config.
    """
    return shape_from_config(*config_by_name(name))


def config_by_name(name: str) -> tuple[dict[str, Any], str]:
    """The config of a model by its hub id, which is not to be changed, and the hub id.

    Bundled models are found in any letter case, by the part after the slash where only one has it, and without a version at
    its end (``mixtral-8x7b`` for ``Mixtral-8x7B-v0.1``) where only one has that. Any other hub id is looked up on the hub if
    ``huggingface_hub`` is installed (extra ``hub``): its ``config.json`` alone, never weights or code.

    Raises:
        InputError: no such model, with the nearest names; or the hub did not give its config.
    """
    name = name.strip()
    if len(name) > 200 or not _HUB_ID.match(name) or ".." in name:
        found = f"{name[:60]!r} is not the name of a model"
        raise InputError(
            Fault("model.name", found, "a hub id, for example meta-llama/Llama-3.1-8B", "For a file or folder use model.config.")
        )
    bundled = _bundled_name(name)
    if bundled is not None:
        return _table()[bundled]["config"], bundled
    if "/" in name:
        from fullstep.models.hub import fetch_config, hub_is_installed  # noqa: PLC0415 - only where a name needs it

        if hub_is_installed():
            return fetch_config(name), name
    raise _not_found(name)


@cache
def _index() -> dict[str, tuple[str, ...]]:
    """Lower-case hub ids and bare names to the hub ids that have them."""
    index: dict[str, tuple[str, ...]] = {}
    for hub_id in _table():
        index[hub_id.lower()] = (hub_id,)
    for hub_id in _table():
        bare = hub_id.lower().partition("/")[2]
        if bare:
            index[bare] = (*index.get(bare, ()), hub_id)
    return index


@cache
def _unversioned() -> dict[str, tuple[str, ...]]:
    """Lower-case bare names without the version at their end to the hub ids that have them."""
    index: dict[str, tuple[str, ...]] = {}
    for hub_id in _table():
        bare = hub_id.lower().rpartition("/")[2]
        short = _VERSION_SUFFIX.sub("", bare)
        if short != bare:
            index[short] = (*index.get(short, ()), hub_id)
    return index


def _bundled_name(name: str) -> str | None:
    if name in _table():
        return name
    found = _index().get(name.lower()) or _unversioned().get(name.lower(), ())
    if len(found) > 1:
        raise InputError(Fault("model.name", f"{name!r} is the name of {len(found)} models", " or ".join(found)))
    return found[0] if found else None


def _not_found(name: str) -> InputError:
    near = get_close_matches(name.lower(), _index(), n=6, cutoff=0.5)
    names = list(dict.fromkeys(hub_id for spelling in near for hub_id in _index()[spelling]))[:4]
    allowed = f"one of the {len(_table())} bundled models" + (f"; nearest: {', '.join(names)}" if names else "")
    remedy = "Give its config.json as model.config, or install the extra: pip install 'fullstep[hub]' reads the config of any hub id."
    return InputError(Fault("model.name", f"{name!r} is not bundled", allowed, remedy))
