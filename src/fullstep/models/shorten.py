"""The config of the same model with fewer blocks: as much as a small machine can hold of a large one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fullstep.errors import Fault, InputError

_COUNTS = ("num_hidden_layers", "num_layers", "n_layers", "n_layer", "decoder_layers")
_LANGUAGE_PARTS = ("text_config", "llm_config")


def shortened_config(config: Mapping[str, Any], layers: int) -> tuple[dict[str, Any], int]:
    """A Hugging Face config with the first ``layers`` blocks alone, and how many there were; lists with an entry for each are cut too.

    >>> shortened_config({"model_type": "llama", "num_hidden_layers": 3, "layer_types": ["a", "b", "a"]}, 2)
    ({'model_type': 'llama', 'num_hidden_layers': 2, 'layer_types': ['a', 'b']}, 3)

    Raises:
        InputError: the config states no number of blocks, or has fewer
    """
    inner = next((name for name in _LANGUAGE_PARTS if isinstance(config.get(name), Mapping)), None)
    if inner is not None:
        shorter, whole = shortened_config(config[inner], layers)
        return {**config, inner: shorter}, whole
    name = next((key for key in _COUNTS if type(config.get(key)) is int), None)
    if name is None:
        raise InputError(Fault("--layers", "the config does not state how many blocks there are", f"one of {', '.join(_COUNTS)} in it"))
    whole = config[name]
    if not 1 <= layers <= whole:
        raise InputError(Fault("--layers", f"found {layers}", f"1 to {whole}, the blocks that the model has"))
    shorter = {key: value[:layers] if isinstance(value, list) and len(value) == whole else value for key, value in config.items()}
    return {**shorter, name: layers}, whole
