"""A base whose linear layers are those of bitsandbytes: packed to 4 bits, or of 8 bits."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from fullstep.errors import Fault, InputError
from fullstep.job import Settings
from fullstep.lab.buildable import FOUR_BIT
from fullstep.lab.program.dtypes import DTYPES

_OUTLIERS_FROM = 6.0
"""feature values that int8 products leave to 16 bits. Source: transformers, BitsAndBytesConfig.llm_int8_threshold"""


def quantize(model: nn.Module, settings: Settings, device: torch.device) -> None:
    """Every ``nn.Linear`` and ``Conv1D`` but the head becomes one of bitsandbytes, one after the other; all of the base is frozen.

    What is not packed goes to float32 if so stated, as peft's ``prepare_model_for_kbit_training`` does. The device holds one layer at full
    width at a time; the rest of the model stays where it is.

    Args:
        model: of transformers, with values, on the processor
        settings: of a worksheet whose base is quantized
        device: that packs, and holds what is packed

    Raises:
        InputError: bitsandbytes is not installed
    """
    packed = settings.method.quantization in FOUR_BIT
    head = getattr(model, "get_output_embeddings", lambda: None)()
    for name, module in list(model.named_modules()):
        if type(module) in (nn.Linear, Conv1D) and module is not head:
            layer = (_of_four_bits if packed else _of_eight_bits)(module, settings)
            parent, _, last = name.rpartition(".")
            setattr(model.get_submodule(parent), last, layer.to(device))
    known: Any = model
    known.is_loaded_in_4bit, known.is_loaded_in_8bit = packed, not packed
    for parameter in model.parameters():
        parameter.requires_grad_(False)
        if settings.method.upcast_unquantized and not _is_quantized(parameter) and parameter.dtype in (torch.float16, torch.bfloat16):
            parameter.data = parameter.data.to(torch.float32)


def elements(parameter: nn.Parameter) -> int:
    """Numbers that a parameter stands for: of a packed one more than it has elements."""
    state = getattr(parameter, "quant_state", None)
    return parameter.numel() if state is None else int(torch.Size(state.shape).numel())


def _is_quantized(parameter: nn.Parameter) -> bool:
    """Packed bytes may pass for a 16-bit dtype."""
    return getattr(parameter, "bnb_quantized", False) or parameter.dtype == torch.int8


def _of_four_bits(layer: nn.Module, settings: Settings) -> nn.Module:
    library, method = _bitsandbytes(), settings.method
    weight, bias = _weight_of(layer)
    compute = DTYPES[settings.precision.compute]
    keys = {
        "quant_type": method.quantization, "compress_statistics": method.double_quantization,
        "quant_storage": compute if settings.layout.is_fsdp else torch.uint8,
    }  # fmt: skip
    found = library.nn.Linear4bit(weight.shape[1], weight.shape[0], bias=False, compute_dtype=compute, device="meta", **keys)
    found.weight = library.nn.Params4bit(weight, requires_grad=False, module=found, **keys)
    found.bias = bias
    return found  # type: ignore[no-any-return]


def _of_eight_bits(layer: nn.Module, settings: Settings) -> nn.Module:
    library = _bitsandbytes()
    weight, bias = _weight_of(layer)
    found = library.nn.Linear8bitLt(
        weight.shape[1], weight.shape[0], bias=False, has_fp16_weights=False, threshold=_OUTLIERS_FROM, device="meta"
    )
    found.weight = library.nn.Int8Params(weight, requires_grad=False, has_fp16_weights=False)
    found.bias = bias
    return found  # type: ignore[no-any-return]


def _weight_of(layer: Any) -> tuple[torch.Tensor, nn.Parameter | None]:
    """[out, in], and the bias."""
    weight = layer.weight.data
    return (weight.T.contiguous() if isinstance(layer, Conv1D) else weight), layer.bias


def _bitsandbytes() -> Any:
    try:
        return import_module("bitsandbytes")
    except ImportError as error:
        raise InputError(Fault("method.quantization", f"bitsandbytes cannot be loaded: {error}", "", "pip install bitsandbytes")) from error
