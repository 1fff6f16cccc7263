"""Dropout and RMS normalisation by the fused kernels of CUDA.

Source: aten/src/ATen/native/Dropout.cpp (is_fused_kernel_acceptable: CUDA tensors only; its mask has one byte per element);
aten/src/ATen/native/layer_norm.cpp (rms_norm_symint: fused on CUDA, composed of small operations elsewhere).
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as functional
from torch import Tensor

from fullstep.lab.trace.worker.compat.unit import Unit

_composed_dropout = functional.dropout


def _dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    if inplace or not training or not 0 < p < 1:
        return _composed_dropout(input, p, training, inplace)
    return torch.native_dropout(input, p, True)[0]


class FusedRmsNorm(torch.autograd.Function):
    """Keeps the input, the scale and one float32 number per row; one result each way. Values are not computed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, width: int) -> Tensor:
        rows = torch.empty(x.numel() // width, dtype=torch.float32, device=x.device)
        ctx.save_for_backward(x, weight, rows)
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor | None, None]:
        x, weight, _ = ctx.saved_tensors
        return torch.empty_like(x), torch.empty_like(weight) if weight is not None and weight.requires_grad else None, None


def _rms_norm(input: Tensor, normalized_shape: list[int], weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    out: Tensor = FusedRmsNorm.apply(input, weight, math.prod(normalized_shape))
    return out


def _install() -> None:
    functional.dropout = _dropout
    functional.rms_norm = _rms_norm


def _self_test() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: PLC0415

    with FakeTensorMode():
        x = torch.empty(4, 8, requires_grad=True)
        assert "NativeDropout" in _name(_dropout(x, 0.5))
        assert "RmsNorm" in _name(_rms_norm(x, [8], torch.ones(8, requires_grad=True)))


def _name(tensor: Tensor) -> str:
    assert tensor.grad_fn is not None
    return tensor.grad_fn.name()


FUSED_ON_CUDA = Unit(
    name="fused_on_cuda",
    why="dropout on a processor keeps a mask as wide as its input, RMS normalisation is made of small operations",
    install=_install,
    self_test=_self_test,
    imposes_cuda=True,
)
