"""Dropout, RMS normalisation and softmax from float16 to float32 by the fused kernels of CUDA.

Source: aten/src/ATen/native/Dropout.cpp (is_fused_kernel_acceptable: CUDA tensors only; its mask has one byte per element);
aten/src/ATen/native/layer_norm.cpp (rms_norm_symint: fused on CUDA, composed of small operations elsewhere);
aten/src/ATen/native/SoftMax.cpp (softmax, log_softmax: a float16 input is not cast first on CUDA; a bfloat16 one is).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from fullstep.lab.trace.worker.compat.unit import Unit

_composed_dropout = functional.dropout
_composed_rms_norm = functional.rms_norm
_composed_softmax = {"softmax": functional.softmax, "log_softmax": functional.log_softmax}
_fused_softmax = {"softmax": torch.ops.aten._softmax.default, "log_softmax": torch.ops.aten._log_softmax.default}


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


def _rms_norm(input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """Fused where input and scale have the same dtype; autocast makes both float32."""
    if torch.is_autocast_enabled("cpu"):
        input, weight = input.float(), None if weight is None else weight.float()
    if weight is not None and weight.dtype != input.dtype:
        return _composed_rms_norm(input, normalized_shape, weight, eps)
    out: Tensor = FusedRmsNorm.apply(input, weight, math.prod(normalized_shape))
    return out


def half_to_float(name: str, x: Tensor, dim: int) -> Tensor:
    """``softmax`` or ``log_softmax`` in float32 of a float16 tensor, without a copy of it in float32."""
    out: Tensor = _fused_softmax[name](x, dim, True)
    return out


def _softmax(name: str) -> Callable[..., Tensor]:
    def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: torch.dtype | None = None) -> Tensor:
        if dim is not None and input.dtype == torch.float16 and dtype == torch.float32:
            return half_to_float(name, input, dim)
        return _composed_softmax[name](input, dim, _stacklevel, dtype)

    return softmax


def _install() -> None:
    functional.dropout = _dropout
    functional.rms_norm = _rms_norm
    for name in _composed_softmax:
        setattr(functional, name, _softmax(name))


def _self_test() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: PLC0415

    with FakeTensorMode():
        x = torch.empty(4, 8, requires_grad=True)
        assert "NativeDropout" in _name(_dropout(x, 0.5))
        assert "RmsNorm" in _name(_rms_norm(x, [8], torch.ones(8, requires_grad=True)))
        half = x.half()
        for name in _composed_softmax:
            out = _softmax(name)(half, -1, dtype=torch.float32)
            assert out.dtype == torch.float32
            assert out.grad_fn is not None
            assert out.grad_fn.next_functions[0][0] is half.grad_fn


def _name(tensor: Tensor) -> str:
    assert tensor.grad_fn is not None
    return tensor.grad_fn.name()


FUSED_ON_CUDA = Unit(
    name="fused_on_cuda",
    why="on a processor dropout keeps a mask as wide as its input, RMS normalisation is made of small operations, softmax casts its input",
    install=_install,
    self_test=_self_test,
    imposes_cuda=True,
)
