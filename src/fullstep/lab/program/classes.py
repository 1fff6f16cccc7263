"""The real class of a model from its config, without weights; and what went wrong inside a class, said in the user's terms."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_module_registration_hook
from torch.utils.checkpoint import CheckpointError

from fullstep.errors import Fault, FullstepError, InputError, UnsupportedError
from fullstep.lab.program.blocks import LAYER_COUNTS

FLASH = "fullstep_flash"
"""name under which the stand-in for the flash-attention package is registered with transformers"""
LARGEST_LAYERS = 1000
LARGEST_SIZE = 10**9
MOST_MODULES = 100_000
"""a class of more modules takes minutes to build"""
MOST_PARAMETERS = 10**15
"""beyond it the bytes of a step soon do not fit into 64 bits"""
_SIZE = re.compile(r"(^|_)(size|dim|heads?|layers?|experts|rank|embeddings|embd?|positions|inner|model|ff)$|^(n|num)_")
_OF_NO_CLASS = ("architectures", "auto_map", "quantization_config", "torch_dtype", "dtype", "num_labels", "id2label", "label2id")
"""keys of a config that say nothing about the shape of the model: remote code, how it was stored, what a classifier tells apart"""
_NEEDS_VALUES = ("DataDependentOutputException", "DynamicOutputShapeException", "UnsupportedFakeTensorException")
_SAYS_SO = ("data-dependent", "data pointer", "invalid values: FakeTensor")
_TRANSFORMERS = "/transformers/"
_OWN = str(Path(__file__).parents[2])
_TWO_DTYPES = "uniform original parameter dtype"
"""what FSDP says. Source: torch.distributed.fsdp._fully_shard, _fsdp_param_group.py"""
_LONGEST = 240


def config_of(config: Mapping[str, Any]) -> Any:
    """The transformers config of a table of keys; of a model that takes more than text its language part, where that has a class.

    Raises:
        UnsupportedError: transformers does not know the model type, or has no causal language model of it
        InputError: a size is out of all proportion, or the config's class refuses the keys
    """
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig, __version__  # noqa: PLC0415
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING  # noqa: PLC0415

    keys = {name: value for name, value in config.items() if name not in _OF_NO_CLASS}
    model_type = keys.pop("model_type", None)
    if not isinstance(model_type, str) or model_type not in CONFIG_MAPPING:
        found, allowed = f"{model_type!r}, which transformers {__version__} does not know", "a model type of transformers"
        remedy = "Remote code is never run; a newer version of transformers may know it."
        raise UnsupportedError(Fault("model config: model_type", found, allowed, remedy))
    if faults := tuple(_out_of_proportion(keys)):
        raise InputError(*faults)
    try:
        found = AutoConfig.for_model(model_type, **keys)
    except Exception as error:
        cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
        raise InputError(Fault("model config", f"its class refuses it: {_in_one_line(cause)}", f"keys of {model_type}'s config")) from error
    text = _language_part(found)
    if type(text) in MODEL_FOR_CAUSAL_LM_MAPPING:
        found = text
    elif type(found) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise UnsupportedError(
            Fault("model config: model_type", f"{model_type!r} is not a causal language model in transformers {__version__}", "one that is")
        )
    found.use_cache = False
    return found


def _language_part(config: Any) -> Any:
    try:
        return config.get_text_config()
    except ValueError:  # it has two of them
        return config


def _out_of_proportion(keys: Mapping[str, Any], where: str = "model config") -> Iterator[Fault]:
    """Sizes that would take minutes or gigabytes to find out that they make no sense."""
    for name, value in keys.items():
        if isinstance(value, Mapping):
            yield from _out_of_proportion(value, f"{where}: {name}")
        if isinstance(value, bool) or not isinstance(value, int):
            continue
        if name in LAYER_COUNTS and not 1 <= value <= LARGEST_LAYERS:
            found = f"found {value:,}" if abs(value) <= LARGEST_SIZE else "a number out of all proportion"
            yield Fault(f"{where}: {name}", found, f"1 to {LARGEST_LAYERS:,}")
        elif _SIZE.search(name) and not name.endswith("_id") and not abs(value) <= LARGEST_SIZE:
            yield Fault(f"{where}: {name}", "a number out of all proportion", f"at most {LARGEST_SIZE:,}")


def build_model(config: Any, dtype: torch.dtype, attention: str, *, random: bool = False) -> nn.Module:
    """The class of the config, whose weights have no values yet.

    Args:
        config: of transformers
        dtype: of all weights
        attention: eager, sdpa or flash; where the class has no sdpa, its own default is taken
        random: weights as the class begins a training, from torch's generator

    Raises:
        InputError: the class cannot be built from this config
        UnsupportedError: it has too many modules
    """
    try:
        with _few_modules(config):
            model = _from_config(config, dtype, ("eager",) if attention == "eager" else ("sdpa", None), random)
    except Exception as error:
        at = _line_of_class(error)
        if at is None:
            raise
        raise InputError(_unbuilt(config, f"{_in_one_line(error)} ({at})")) from error
    _require_weights(model)
    if attention == "flash":
        for module in model.modules():
            if hasattr(getattr(module, "config", None), "_attn_implementation"):
                module.config._attn_implementation = FLASH  # type: ignore[union-attr]
    model.config.use_cache = False  # type: ignore[union-attr]
    model.train()
    return model


def load_model(weights: str, config: Any, dtype: torch.dtype, attention: str) -> nn.Module:
    """The class of the config with weights that were trained.

    Args:
        weights: folder of transformers' files, or hub id
        config: of transformers
        dtype: of all weights
        attention: eager, sdpa or flash

    Raises:
        InputError: there is no such model, or its weights are others than the config's
    """
    from transformers import AutoModelForCausalLM  # noqa: PLC0415

    try:
        model: Any = AutoModelForCausalLM.from_pretrained(
            weights, config=config, dtype=dtype, attn_implementation="eager" if attention == "eager" else "sdpa"
        )
    except (OSError, ValueError, RuntimeError) as error:
        allowed = "a folder that transformers wrote, or a hub id, of the worksheet's model"
        raise InputError(Fault("--real-weights", f'"{weights[:80]}": {_in_one_line(error)}', allowed)) from error
    model.config.use_cache = False
    model.train()
    return model  # type: ignore[no-any-return]


def require_positions(model: nn.Module, tokens: int) -> None:
    """A class that learned its positions has one for every token of a row; without values nobody would notice.

    Raises:
        InputError: rows are longer
    """
    for name, module in model.named_modules():
        last = name.rpartition(".")[2]
        learned = isinstance(module, nn.Embedding) and ("position" in last or last == "wpe")
        if learned and module.num_embeddings < tokens:  # type: ignore[operator]
            found = f"{tokens}, but {name} of {type(model).__name__} has {module.num_embeddings} positions: a real step stops there"
            raise InputError(Fault("batch.sequence_tokens", found, f"at most {module.num_embeddings}"))


def _unbuilt(config: Any, why: str) -> Fault:
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING  # noqa: PLC0415

    model_class = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    found = f"{model_class.__name__} cannot be built from it: {why}"
    wanted: type = model_class.config_class
    if isinstance(config, wanted):
        return Fault("model config", found, "keys and sizes that go together", "A key that the line reads may be missing.")
    return Fault("model config", found, f"the keys of a {wanted.__name__}, from which the class is built")


def _from_config(config: Any, dtype: torch.dtype, implementations: Sequence[str | None], random: bool) -> nn.Module:
    """With the first implementation of attention that the class has; None: its own default."""
    from transformers import AutoModelForCausalLM  # noqa: PLC0415
    from transformers.initialization import no_init_weights  # noqa: PLC0415

    first, *others = implementations
    try:
        with nullcontext() if random else no_init_weights():
            model: Any = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=first)
    except ValueError as error:
        if not others or ("attention implementation" not in str(error) and "scaled_dot_product" not in str(error)):
            raise
        return _from_config(config, dtype, others, random)
    if not random:
        model.tie_weights(recompute_mapping=False)  # which is part of the initialization that was left out
    return model  # type: ignore[no-any-return]


def _require_weights(model: nn.Module) -> None:
    """Refuses a model of which nothing could be said."""
    empty = next((name for name, parameter in model.named_parameters() if not parameter.numel()), None)
    if empty is not None:
        raise InputError(Fault("model config", f"{empty} would have no elements", "sizes of 1 and more"))
    count = sum(parameter.numel() for parameter in model.parameters())
    if count > MOST_PARAMETERS:
        raise InputError(Fault("model config", f"a model of {count:.3g} parameters", f"at most {MOST_PARAMETERS:.0e}"))


@contextmanager
def _few_modules(config: Any) -> Iterator[None]:
    """Stops the building of a model that would take minutes."""
    count = 0

    def registered(*_: Any) -> None:
        nonlocal count
        count += 1
        if count > MOST_MODULES:
            found = f"the class of {config.model_type!r} makes more than {MOST_MODULES:,} modules of it"
            raise UnsupportedError(Fault("model config", found, "fewer", "Fewer layers or experts can be traced, and counted up by hand."))

    handle = register_module_module_registration_hook(registered)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def faults_of_class(model: nn.Module) -> Iterator[None]:
    """What a class of transformers raises while it runs becomes a fault that names the class, the error and the line of its code.

    Raises:
        UnsupportedError: the class needs values of a tensor, which a trace does not have, or it does not run on rows of token ids
    """
    try:
        yield
    except FullstepError:
        raise
    except AssertionError as error:
        if _TWO_DTYPES not in str(error):
            raise
        found = f"one unit of FSDP would hold weights of two dtypes, which it refuses: {_in_one_line(error)}"
        remedy = "Or train no module beside the adapter (method.train_modules)."
        raise UnsupportedError(Fault("precision.adapters", found, "the dtype of the weights", remedy)) from error
    except CheckpointError as error:
        found = f"of this program torch refuses, since it meets other tensors than forward did: {_in_one_line(error)}"
        raise UnsupportedError(Fault("step.activation_checkpointing", found, "none", "Or precision.autocast = true.")) from error
    except Exception as error:
        at = _line_of_class(error)
        if at is None:
            raise
        name = type(model).__name__
        if type(error).__name__ in _NEEDS_VALUES or any(text in str(error) for text in _SAYS_SO):
            found = f"{name} reads values of a tensor, which a trace does not have ({at})"
        else:
            found = f"{name} stops with {_in_one_line(error)} ({at})"
        raise UnsupportedError(
            Fault("model config: model_type", found, "a class and a config that run a training step on rows of token ids and labels")
        ) from error


def _line_of_class(error: Exception) -> str | None:
    """The line of transformers at which it was raised; None where our own code raised it, or transformers had no part in it."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [number for number, frame in enumerate(frames) if frame.filename.startswith(_OWN)]
    theirs = [number for number, frame in enumerate(frames) if _TRANSFORMERS in frame.filename]
    models = [number for number in theirs if "/models/" in frames[number].filename]
    if not theirs or ours[-1:] == [len(frames) - 1]:
        return None
    frame = frames[(models or theirs)[-1]]
    return f"{Path(frame.filename).name}:{frame.lineno} `{frame.line}`"


def _in_one_line(error: Exception) -> str:
    """Kind and text of an error, cut off where it is long.

    >>> _in_one_line(ValueError("heads:\\n  must divide"))
    'ValueError: heads: must divide'
    """
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:_LONGEST] if text else type(error).__name__
