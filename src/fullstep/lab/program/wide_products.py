"""Matrix products of 16 bits where the processor has none: in float32, with operands and results in the 16 bits that the program has.

Without such arithmetic a product of a large vocabulary takes minutes. What the program holds, and so what it saves, stays as it is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode


class _WideProducts(TorchFunctionMode):
    """Takes the place of linear layers while it is on; gradients follow."""

    def __torch_function__(
        self, function: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        chosen = _linear if function is functional.linear else function
        return chosen(*args, **(kwargs or {}))


def _linear(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else inputs.dtype
    if dtype != torch.bfloat16:
        return functional.linear(inputs, weight, bias)
    with torch.autocast("cpu", enabled=False):
        operands = [None if each is None else each.to(dtype).float() for each in (inputs, weight, bias)]
        return functional.linear(*operands).to(dtype)


def products_of(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Around forward: nothing where the device multiplies 16 bits itself."""
    if device.type != "cpu" or torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return contextlib.nullcontext()
    return _WideProducts()
