"""A model's config from the Hugging Face hub: ``config.json`` alone, never weights, never code."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from fullstep.errors import Fault, InputError
from fullstep.models.config import read_config

_REMEDIES = {
    "GatedRepoError": "Ask for access on its page and set HF_TOKEN, or give its config.json as model.config.",
    "RepositoryNotFoundError": "Check the spelling; a private repository needs HF_TOKEN.",
    "EntryNotFoundError": "The repository has no config.json; give one as model.config.",
    "RemoteEntryNotFoundError": "The repository has no config.json; give one as model.config.",
    "LocalEntryNotFoundError": "The hub cannot be reached and the config is not in the cache; give it as model.config.",
    "OfflineModeIsEnabled": "HF_HUB_OFFLINE is set and the config is not in the cache; unset it or give it as model.config.",
}


def hub_is_installed() -> bool:
    """Whether the extra ``hub`` is there."""
    return find_spec("huggingface_hub") is not None


def fetch_config(name: str) -> dict[str, Any]:
    """The table in the ``config.json`` of a hub id, from the cache or the hub. HF_TOKEN, HF_HOME and HF_HUB_OFFLINE hold.

    Raises:
        InputError: the hub did not give it, and why.
    """
    hub: Any = import_module("huggingface_hub")  # optional, and slow to import
    try:
        path = hub.hf_hub_download(name, "config.json")
    except Exception as error:  # the hub's client raises errors of its own, of its transport's and of the system
        kind = type(error).__name__
        remedy = _REMEDIES.get(kind, "Give its config.json as model.config.")
        lines = str(error).strip().splitlines() or [""]
        raise InputError(Fault("model.name", f"{name!r}: the hub did not give its config ({kind}: {lines[0][:160]})", "", remedy)) from None
    return read_config(path)
