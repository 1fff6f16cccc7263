"""The real class of a model from its config, without weights; its repeated blocks; and the same model with fewer of the equal ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from fullstep.errors import Fault, InputError, UnsupportedError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
FLASH = "fullstep_flash"
"""name under which the stand-in for the flash-attention package is registered with transformers"""
_FEWEST = 4
"""a list of modules shorter than this is not repeated"""
_PER_LAYER = "num_hidden_layers"


@dataclass(frozen=True, slots=True)
class Blocks:
    """The repeated part of a model.

    ``kinds``: of every block of the whole model, equal numbers for equal blocks. ``kept``: the indices of those that are there.
    ``first``, ``length``, ``repeated``: kept blocks from ``first`` on, ``length`` of them, stand for ``repeated`` such stretches more.
    """

    path: str
    """name of the list in the model; empty where none was found"""
    kinds: tuple[int, ...]
    kept: tuple[int, ...]
    first: int = 0
    length: int = 1
    repeated: int = 0


def config_of(config: Mapping[str, Any]) -> Any:
    """The transformers config of a table of keys.

    Raises:
        UnsupportedError: transformers does not know the model type, or has no causal language model of it
        InputError: its class refuses the keys
    """
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig, __version__  # noqa: PLC0415
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING  # noqa: PLC0415

    keys = {name: value for name, value in config.items() if name not in ("architectures", "auto_map", "quantization_config", "torch_dtype", "dtype")}
    model_type = keys.pop("model_type", None)
    if model_type not in CONFIG_MAPPING:
        raise UnsupportedError(
            Fault(
                "model config: model_type", f"{model_type!r}, which transformers {__version__} does not know", "a model type of transformers",
                "Remote code is never run; a newer version of transformers may know it.",
            )  # fmt: skip
        )
    try:
        found = AutoConfig.for_model(model_type, **keys)
    except Exception as error:
        raise InputError(Fault("model config", f"its class refuses it: {_first_line(error)}", f"keys of {model_type}'s config")) from error
    text = found.get_text_config()
    if type(text) in MODEL_FOR_CAUSAL_LM_MAPPING:
        found = text  # of a model that takes more than text, the language part
    if type(found) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise UnsupportedError(
            Fault("model config: model_type", f"{model_type!r} is not a causal language model in transformers {__version__}", "one that is")
        )
    found.use_cache = False
    return found


def build_model(config: Any, dtype: torch.dtype, attention: str) -> nn.Module:
    """The class of the config, with weights that take memory and have no values. Call it inside the fake mode.

    Args:
        config: of transformers
        dtype: of all weights
        attention: eager, sdpa or flash; where the class has no sdpa, its own default is taken
    """
    from transformers import AutoModelForCausalLM  # noqa: PLC0415
    from transformers.initialization import no_init_weights  # noqa: PLC0415

    def build(implementation: str | None) -> nn.Module:
        with no_init_weights():
            model: Any = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=implementation)
        model.tie_weights(recompute_mapping=False)  # which is part of the initialization that was left out
        return model  # type: ignore[no-any-return]

    if attention == "eager":
        model = build("eager")
    else:
        try:
            model = build("sdpa")
        except ValueError as error:
            if "attention implementation" not in str(error) and "scaled_dot_product" not in str(error):
                raise
            model = build(None)
    if attention == "flash":
        _use_flash(model)
    model.config.use_cache = False
    model.train()
    return model


def _use_flash(model: nn.Module) -> None:
    for module in model.modules():
        config = getattr(module, "config", None)
        if config is not None and hasattr(config, "_attn_implementation"):
            config._attn_implementation = FLASH


def find_blocks(model: nn.Module) -> Blocks:
    """The longest list of modules that is not inside another one, and which of its blocks are equal."""
    lists: dict[str, nn.ModuleList] = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.ModuleList) and len(module) >= 1 and not any(name.startswith(f"{outer}.") for outer in lists):
            lists[name] = module
    if not lists:
        return Blocks("", (), ())
    path = max(lists, key=lambda name: (sum(p.numel() for p in lists[name].parameters()), len(lists[name])))
    known: dict[Any, int] = {}
    kinds = tuple(known.setdefault(_signature(block), len(known)) for block in lists[path])
    return Blocks(path, kinds, tuple(range(len(kinds))))


def _signature(block: nn.Module) -> Any:
    """Equal for blocks that compute alike: classes, plain attributes, shapes and dtypes of all that they hold."""
    rows = []
    for name, module in block.named_modules():
        plain = tuple(
            (key, value) for key, value in sorted(vars(module).items())
            if key not in ("layer_idx", "layer_id", "layer_number", "block_idx", "training", "idx") and not key.startswith("_")
            and isinstance(value, (int, float, str, bool, type(None), tuple))
        )  # fmt: skip
        tensors = tuple((key, tuple(t.shape), str(t.dtype)) for key, t in [*module._parameters.items(), *module._buffers.items()] if t is not None)
        rows.append((name, type(module).__name__, _hashable(plain), tensors))
    return tuple(rows)


def _hashable(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value


def with_fewer(blocks: Blocks, margin: int) -> Blocks:
    """The same blocks with the middle of the longest periodic stretch left out, or as they are where that would save nothing.

    Args:
        blocks: all of them
        margin: stretches to keep on either side of the one that stands for the others

    >>> with_fewer(Blocks("layers", (0,) * 32, tuple(range(32))), 2).kept
    (0, 1, 2, 30, 31)
    >>> found = with_fewer(Blocks("layers", (9,) + (0, 0, 1) * 10, tuple(range(31))), 2)
    >>> found.first, found.length, found.repeated
    (7, 3, 5)
    """
    start, length, count = _longest_period(blocks.kinds)
    keep = 2 * margin + 1
    if count <= keep:
        return blocks
    repeated = count - keep
    first = start + margin * length
    cut = range(first + length, first + length + repeated * length)
    kept = tuple(index for index in blocks.kept if index not in cut)
    return replace(blocks, kept=kept, first=first, length=length, repeated=repeated)


def _longest_period(kinds: tuple[int, ...]) -> tuple[int, int, int]:
    """(start, length of the period, how many whole ones) of the stretch that covers most blocks, the shortest period first."""
    best = (0, 1, 0)
    for length in range(1, len(kinds) // 2 + 1):
        start = 0
        while start + length <= len(kinds):
            end = start + length
            while end < len(kinds) and kinds[end] == kinds[end - length]:
                end += 1
            count = (end - start) // length
            if count * length > best[1] * best[2]:
                best = (start, length, count)
            start = max(end - length + 1, start + 1)
    return best


def cut(model: nn.Module, blocks: Blocks) -> list[nn.Module]:
    """Leaves out of the model what ``blocks`` does not keep, and tells its config. Returns the blocks that remain."""
    if not blocks.path:
        return []
    whole = model.get_submodule(blocks.path)
    assert isinstance(whole, nn.ModuleList)
    if len(blocks.kept) == len(whole):
        return list(whole)
    kept = [whole[index] for index in blocks.kept]
    parent = model.get_submodule(blocks.path.rpartition(".")[0])
    setattr(parent, blocks.path.rpartition(".")[2], nn.ModuleList(kept))
    for module in model.modules():
        config = getattr(module, "config", None)
        if config is not None and getattr(config, _PER_LAYER, None) == len(blocks.kinds):
            _shorten(config, blocks)
    for index, block in enumerate(kept):
        for module in block.modules():
            if isinstance(getattr(module, "layer_idx", None), int):
                module.layer_idx = index  # type: ignore[assignment]
    return kept


def _shorten(config: Any, blocks: Blocks) -> None:
    whole = len(blocks.kinds)
    for name, value in list(vars(config).items()):
        if isinstance(value, (list, tuple)) and len(value) == whole:
            setattr(config, name, type(value)(value[index] for index in blocks.kept))
    config.num_hidden_layers = len(blocks.kept)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
