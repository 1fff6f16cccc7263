"""Scaled dot-product attention takes the kernel that CUDA would take, not the one of the processor.

Source: aten/src/ATen/native/transformers/cuda/sdp_utils.cpp (use_flash_attention, use_mem_efficient_attention, and their order),
transformers/cuda/attention.cu (heads are padded to a multiple of 8 for flash).
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as functional
from torch import Tensor

from fullstep.lab.trace.worker.compat.unit import Unit

FLASH_HEAD_DIM = 256
_ALIGNMENT = 8
_flash = torch.ops.aten._scaled_dot_product_flash_attention.default
_efficient = torch.ops.aten._scaled_dot_product_efficient_attention.default
_math = torch.ops.aten._scaled_dot_product_attention_math.default

Kernel = Literal["flash", "efficient", "math"]


def kernel_of(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, grouped: bool) -> Kernel:
    """What CUDA chooses, in its order: flash, memory-efficient, math.

    Args:
        query: [rows, heads, tokens, head dimension]; key and value likewise
        mask: of attention, or None
        grouped: there are fewer heads of keys than of queries, and the kernel is asked to repeat them
    """
    half = query.dtype in (torch.float16, torch.bfloat16)
    if query.dim() != 4:
        return "math"
    if half and mask is None and query.shape[-1] <= FLASH_HEAD_DIM and key.shape[-1] == value.shape[-1]:
        return "flash"
    if grouped or query.dtype == torch.float64:
        return "math"
    return "efficient"


def attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """In place of ``torch.nn.functional.scaled_dot_product_attention``; the same arguments, shapes and result."""
    if torch.is_autocast_enabled("cpu"):
        dtype = torch.get_autocast_dtype("cpu")
        query, key, value = (x.to(dtype) if x.dtype == torch.float32 else x for x in (query, key, value))
        if attn_mask is not None and attn_mask.is_floating_point():
            attn_mask = attn_mask.to(dtype)
    kernel = kernel_of(query, key, value, attn_mask, grouped=enable_gqa and query.shape[1] != key.shape[1])
    if kernel == "flash":
        return flash(query, key, value, dropout_p, causal=is_causal, scale=scale)
    if kernel == "efficient":
        mask = _bias(attn_mask, query, key)
        keeps = query.requires_grad or key.requires_grad or value.requires_grad
        out: Tensor = _efficient(query, key, value, mask, keeps, dropout_p, is_causal, scale=scale)[0]
        return out
    mask = _bias(attn_mask, query, key)
    whole: Tensor = _math(query, key, value, mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa)[0]
    return whole


def flash(query: Tensor, key: Tensor, value: Tensor, dropout: float, *, causal: bool, scale: float | None) -> Tensor:
    """The flash kernel, heads padded to a multiple of 8. Shapes as :func:`kernel_of`."""
    width = query.shape[-1]
    pad = -width % _ALIGNMENT
    if scale is None:
        scale = width**-0.5
    if pad:
        query, key, value = (functional.pad(x, (0, pad)) for x in (query, key, value))
    out: Tensor = _flash(query, key, value, dropout, causal, False, scale=scale)[0]
    return out[..., :width] if pad else out


def _bias(mask: Tensor | None, query: Tensor, key: Tensor) -> Tensor | None:
    """A boolean mask becomes one of numbers; it is spread over heads and rows without a copy."""
    if mask is None:
        return None
    if mask.dtype == torch.bool:
        mask = torch.full_like(mask, 0.0, dtype=query.dtype).masked_fill_(mask.logical_not(), float("-inf"))
    return mask.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])


def _install() -> None:
    functional.scaled_dot_product_attention = attention


def _self_test() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: PLC0415

    with FakeTensorMode():
        query = torch.empty(1, 4, 8, 64, dtype=torch.bfloat16, requires_grad=True)
        out = attention(query, query, query, is_causal=True)
        assert out.grad_fn is not None
        assert "Flash" in out.grad_fn.name()
        out.sum().backward()
        mask = torch.ones(1, 1, 8, 8, dtype=torch.bool)
        masked = attention(query, query, query, attn_mask=mask)
        assert masked.grad_fn is not None
        assert "Efficient" in masked.grad_fn.name()
        masked.sum().backward()


ATTENTION = Unit(
    name="attention",
    why="a processor would take its own kernels, which keep other tensors for backward",
    install=_install,
    self_test=_self_test,
    imposes_cuda=True,
)
