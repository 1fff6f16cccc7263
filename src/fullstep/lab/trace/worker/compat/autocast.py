"""Autocast with CUDA's lists of operations on the processor's tensors.

The lists differ: on CUDA norms, softmax, powers, sums and losses run in float32; on a processor only a few do, and others do that CUDA
leaves alone.
Source: aten/src/ATen/autocast_mode.h (AT_FORALL_LOWER_PRECISION_FP, AT_FORALL_FP32, AT_FORALL_FP32_SET_OPT_DTYPE,
AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE, AT_FORALL_PROMOTE), which is among the headers that torch brings; a test compares the lists.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import checkpoint

from fullstep.lab.trace.worker.compat.dropout import half_to_float
from fullstep.lab.trace.worker.compat.unit import Unit

Operation = Callable[..., Any]
LOWER = frozenset((
    "_convolution", "convolution", "addmv", "addr", "einsum", "mv", "chain_matmul", "linalg_multi_dot", "_thnn_fused_lstm_cell",
    "_thnn_fused_gru_cell", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell", "_scaled_dot_product_flash_attention",
))  # fmt: skip
"""run in the lower precision on CUDA, left alone on a processor. Matrix products and convolutions by their usual names are on both lists;
there the processor's own rule stays, which keeps the casts of weights until autocast ends, as CUDA's does"""
FLOAT32 = frozenset((
    "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal", "rsqrt", "sinh", "tan",
    "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar", "softplus", "layer_norm", "native_layer_norm", "rms_norm", "group_norm",
    "frobenius_norm.dim", "nuclear_norm", "nuclear_norm.dim", "cosine_similarity", "poisson_nll_loss", "cosine_embedding_loss", "nll_loss",
    "nll_loss2d", "hinge_embedding_loss", "kl_div", "l1_loss", "smooth_l1_loss", "huber_loss", "mse_loss", "margin_ranking_loss",
    "multilabel_margin_loss", "soft_margin_loss", "triplet_margin_loss", "multi_margin_loss", "binary_cross_entropy_with_logits", "dist",
    "pdist", "cdist", "renorm", "logsumexp", "upsample_nearest1d", "_upsample_nearest_exact1d", "upsample_nearest2d",
    "_upsample_nearest_exact2d", "upsample_nearest3d", "_upsample_nearest_exact3d", "upsample_linear1d", "upsample_bilinear2d",
    "_upsample_bilinear2d_aa", "upsample_trilinear3d", "upsample_bicubic2d", "_upsample_bicubic2d_aa",
))  # fmt: skip
"""run in float32"""
SETS_DTYPE = {
    "prod": 1, "prod.dim_int": 3, "softmax.int": 2, "log_softmax.int": 2, "cumprod": 2, "cumsum": 2, "linalg_vector_norm": 4,
    "linalg_matrix_norm": 4, "linalg_matrix_norm.str_ord": 4, "sum": 1, "sum.dim_IntList": 3,
}  # fmt: skip
"""run in float32 by way of their argument dtype, which stands at this place or is a keyword"""
APPENDS_DTYPE: dict[str, tuple[str, tuple[Any, ...]]] = {
    "norm.Scalar": ("norm.ScalarOpt_dtype", (2,)),
    "norm.ScalarOpt_dim": ("norm.ScalarOpt_dim_dtype", (None, None, False)),
}
"""run in float32 by way of another overload, which takes the dtype behind arguments that are then all needed; here their defaults"""
PROMOTE = frozenset((
    "addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "vdot", "grid_sampler", "index_put", "tensordot", "scatter_add",
))  # fmt: skip
"""run in the widest dtype among their arguments"""
_LOW = (torch.float16, torch.bfloat16)
_KEEPS_REFERENCE: list[torch.library.Library] = []
_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)


def left_alone() -> frozenset[str]:
    """Operations that a processor casts and CUDA does not: by what both have registered."""
    registered = torch._C._dispatch_get_registrations_for_dispatch_key
    return frozenset(name.removeprefix("aten::") for name in set(registered("AutocastCPU")) - set(registered("AutocastCUDA")))


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, Tensor):
        return value.to(dtype) if value.dtype in (*_LOW, torch.float32) else value
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], Tensor):
        return [_cast(each, dtype) for each in value]
    return value


def _casting(operation: Operation, choose: Callable[[Any], torch.dtype]) -> Operation:
    """Every tensor among the arguments in the dtype that is chosen."""

    def run(*args: Any, **kwargs: Any) -> Any:
        dtype = choose((args, kwargs))
        with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
            return operation(*(_cast(each, dtype) for each in args), **{name: _cast(each, dtype) for name, each in kwargs.items()})

    return run


def _lower(_: Any) -> torch.dtype:
    return torch.get_autocast_dtype("cpu")


def _float32(_: Any) -> torch.dtype:
    return torch.float32


def _widest(arguments: Any) -> torch.dtype:
    args, kwargs = arguments
    flat = [x for value in (*args, *kwargs.values()) for x in (value if isinstance(value, (list, tuple)) else (value,))]
    wide = any(isinstance(x, Tensor) and x.dtype == torch.float32 for x in flat)
    return torch.float32 if wide else torch.get_autocast_dtype("cpu")


def _setting_dtype(operation: Operation, place: int) -> Operation:
    def run(*args: Any, **kwargs: Any) -> Any:
        if args[0].dtype in _LOW and kwargs.get("dtype") is None and (len(args) <= place or args[place] is None):
            args, kwargs = args[:place], {**kwargs, "dtype": torch.float32}
        with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
            return operation(*args, **kwargs)

    return run


def _half_to_float(name: str, otherwise: Operation) -> Operation:
    def run(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Any:
        if x.dtype != torch.float16 or dtype not in (None, torch.float32):
            return otherwise(x, dim, dtype)
        with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
            return half_to_float(name, x, dim)

    return run


def _appending_dtype(operation: Operation, defaults: tuple[Any, ...]) -> Operation:
    def run(x: Tensor, *args: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
            return operation(x, *args, *defaults[len(args) :], dtype=torch.float32 if x.dtype in _LOW else x.dtype)

    return run


def _operation(name: str) -> Operation:
    packet, _, overload = name.partition(".")
    operation: Operation = getattr(getattr(torch.ops.aten, packet), overload or "default")
    return operation


def _install() -> None:
    rules: dict[str, Operation] = dict.fromkeys(left_alone(), torch.library.fallthrough_kernel)
    rules |= {name: _casting(_operation(name), _lower) for name in LOWER}
    rules |= {name: _casting(_operation(name), _float32) for name in FLOAT32}
    rules |= {name: _casting(_operation(name), _widest) for name in PROMOTE}
    rules |= {name: _setting_dtype(_operation(name), place) for name, place in SETS_DTYPE.items()}
    rules |= {f"{name}.int": _half_to_float(name, rules[f"{name}.int"]) for name in ("softmax", "log_softmax")}
    rules |= {name: _appending_dtype(_operation(other), defaults) for name, (other, defaults) in APPENDS_DTYPE.items()}
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Warning only once for all operators")  # that a rule takes the place of another is wanted
        for name, rule in rules.items():
            library.impl(name, rule, "AutocastCPU", allow_override=True)
    _KEEPS_REFERENCE.append(library)
    torch.cuda.amp.common.amp_definitely_not_available = lambda: False  # type: ignore[assignment]
    checkpoint.DefaultDeviceType.set_device_type("cuda")  # whose autocast is on again while a block is recomputed


def _self_test() -> None:
    x = torch.ones(4, 4, dtype=torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.rsqrt(x).dtype == torch.float32
        assert x.pow(2).dtype == torch.float32
        assert torch.softmax(x, -1).dtype == torch.float32
        assert x.sum().dtype == torch.float32
        assert x.norm().dtype == torch.float32
        assert torch.nn.functional.layer_norm(x, [4]).dtype == torch.float32
        assert torch.nn.functional.silu(x).dtype == torch.bfloat16
        assert (x.float() @ x.float()).dtype == torch.bfloat16
        assert torch.einsum("ij,kj->ik", x.float(), x).dtype == torch.bfloat16
        assert torch.cat([x, x]).dtype == torch.bfloat16
    assert torch.rsqrt(x).dtype == torch.bfloat16
    asked: list[bool] = []

    def step(values: Tensor) -> Tensor:
        asked.append(torch.is_autocast_enabled())
        return values.sin()

    with torch.autocast("cuda", dtype=torch.float16):
        made = checkpoint.checkpoint(step, torch.ones(2, requires_grad=True), use_reentrant=False)
    made.sum().backward()
    assert asked == [True, True]


AUTOCAST = Unit(
    name="autocast",
    why="autocast on a processor leaves norms, softmax and powers in the low precision; without CUDA its own cannot be on, which code "
    "that is recomputed asks for",
    install=_install,
    self_test=_self_test,
    imposes_cuda=True,
)
