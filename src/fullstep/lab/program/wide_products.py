"""Matrix products of 16 bits where the processor has none: in float32, with operands and results in the 16 bits that the program has.

Without such arithmetic a product of a large vocabulary takes minutes. What the program holds, and so what it saves, stays as it is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional

_LINEAR = functional.linear


def _wide_linear(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else inputs.dtype
    if dtype != torch.bfloat16:
        return _LINEAR(inputs, weight, bias)
    with torch.autocast("cpu", enabled=False):
        operands = [None if each is None else each.to(dtype).float() for each in (inputs, weight, bias)]
        return _LINEAR(*operands).to(dtype)  # type: ignore[arg-type]


@contextlib.contextmanager
def wide_products() -> Iterator[None]:
    """Linear layers multiply in float32 meanwhile; gradients follow.

    It takes the place of torch's function, since torch sets its own modes aside while backward runs, which recomputes forward passes.
    """
    functional.linear = _wide_linear  # type: ignore[assignment]
    try:
        yield
    finally:
        functional.linear = _LINEAR


def products_of(device: torch.device) -> contextlib.AbstractContextManager[None]:
    """Around forward and backward: nothing where the device multiplies 16 bits itself."""
    if device.type != "cpu" or torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return contextlib.nullcontext()
    return wide_products()
