"""Autocast with CUDA's lists of operations on the processor's tensors.

The lists differ: on CUDA norms, softmax, powers, sums and losses run in float32; on a processor only a few do.
Source: aten/src/ATen/autocast_mode.h (AT_FORALL_FP32, AT_FORALL_FP32_SET_OPT_DTYPE, AT_FORALL_PROMOTE), autocast_mode.cpp.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fullstep.lab.trace.worker.compat.unit import Unit

_FLOAT32 = (
    "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal", "rsqrt", "sinh", "tan",
    "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar", "softplus", "layer_norm", "native_layer_norm", "group_norm",
    "cosine_similarity", "dist", "renorm", "logit",
)  # fmt: skip
"""run in float32 on CUDA and left alone on a processor"""
_SETS_DTYPE = {
    "softmax.int": 2, "log_softmax.int": 2, "cumsum": 2, "cumprod": 2, "sum": 1, "sum.dim_IntList": 3,
}  # fmt: skip
"""run in float32 through their dtype argument, which stands at this place or is a keyword"""
_KEEPS_REFERENCE: list[torch.library.Library] = []
_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)


def _without_autocast(operation: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
        return operation(*args, **kwargs)


def _raised(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.float() if value.dtype in (torch.float16, torch.bfloat16) else value
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], Tensor):
        return [_raised(each) for each in value]
    return value


def _in_float32(operation: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
            return operation(*map(_raised, args), **{name: _raised(value) for name, value in kwargs.items()})

    return run


def _asking_for_float32(operation: Callable[..., Any], place: int) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        low = args[0].dtype in (torch.float16, torch.bfloat16)
        if low and kwargs.get("dtype") is None and (len(args) <= place or args[place] is None):
            args, kwargs = args[:place], {**kwargs, "dtype": torch.float32}
        return _without_autocast(operation, *args, **kwargs)

    return run


def _operation(name: str) -> Callable[..., Any]:
    packet, _, overload = name.partition(".")
    operation: Callable[..., Any] = getattr(getattr(torch.ops.aten, packet), overload or "default")
    return operation


def _install() -> None:
    library = torch.library.Library("aten", "IMPL")
    for name in _FLOAT32:
        library.impl(name, _in_float32(_operation(name)), "AutocastCPU")
    for name, place in _SETS_DTYPE.items():
        library.impl(name, _asking_for_float32(_operation(name), place), "AutocastCPU")
    _KEEPS_REFERENCE.append(library)


def _self_test() -> None:
    x = torch.ones(4, 4, dtype=torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.rsqrt(x).dtype == torch.float32
        assert x.pow(2).dtype == torch.float32
        assert torch.softmax(x, -1).dtype == torch.float32
        assert x.sum().dtype == torch.float32
        assert torch.nn.functional.layer_norm(x, [4]).dtype == torch.float32
        assert torch.nn.functional.silu(x).dtype == torch.bfloat16
        assert (x.float() @ x.float()).dtype == torch.bfloat16
    assert torch.rsqrt(x).dtype == torch.bfloat16


AUTOCAST = Unit(
    name="autocast",
    why="autocast on a processor leaves norms, softmax and powers in the low precision",
    install=_install,
    self_test=_self_test,
    imposes_cuda=True,
)
