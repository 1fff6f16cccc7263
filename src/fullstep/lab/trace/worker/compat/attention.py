"""Scaled dot-product attention takes the kernel that CUDA would take, not the one of the processor.

Source: aten/src/ATen/native/transformers/cuda/sdp_utils.cpp (can_use_flash_attention, can_use_mem_efficient_attention, and their order);
transformers/attention.cpp (convert_boolean_attn_mask: one tensor of numbers; preprocess_mask: rows of a mask are padded to a multiple of 8
for the memory-efficient kernel; heads are padded to a multiple of 8 for flash).

Where CUDA prefers cuDNN's kernel (compute capability 9 and 10 with cuDNN from 9.15.1 on), that of flash or the memory-efficient one stands
for it: it keeps the same tensors for backward, and what it allocates inside is not published.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from fullstep.lab.trace.worker.compat import capabilities
from fullstep.lab.trace.worker.compat.unit import Unit

_FLASH_HEAD_DIM = 256
_FLASH_SINCE = (8, 0)
_SMALL_SHARED_MEMORY = ((8, 6), (8, 7), (8, 9), (12, 0), (12, 1))
"""here flash's backward has no kernel for some heads wider than 192. Source: check_requires_grad_and_head_dim_gt192_constraints_..."""
_ALIGNMENT = 8
_flash = torch.ops.aten._scaled_dot_product_flash_attention.default
_efficient = torch.ops.aten._scaled_dot_product_efficient_attention.default
_math = torch.ops.aten._scaled_dot_product_attention_math.default

Kernel = Literal["flash", "efficient", "math"]


def kernel_of(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None,
    *, grouped: bool = False, causal: bool = False, dropout: float = 0.0,
) -> Kernel:  # fmt: skip
    """What CUDA chooses on the worksheet's card, in its order: flash, memory-efficient, math.

    Args:
        query: [rows, heads, tokens, head dimension]; key and value likewise
        mask: of attention, or None
        grouped: there are fewer heads of keys than of queries, and the kernel is asked to repeat them
        causal: the kernel itself masks what comes later
        dropout: probability
    """
    capability = capabilities.capability()
    if query.dim() != 4 or query.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        return "math"
    if query.dtype == torch.bfloat16 and capability < _FLASH_SINCE:
        return "math"
    widths = {x.shape[-1] for x in (query, key, value)}
    square = not causal or query.shape[-2] == key.shape[-2]
    half = query.dtype != torch.float32
    if query.shape[1] != key.shape[1] and not grouped:  # check_batch_size_and_num_heads_dense: only math broadcasts
        return "math"
    if half and mask is None and square and len(widths) == 1 and _flash_has_a_kernel(query, capability, dropout):
        return "flash"
    aligned = all(width % _efficient_alignment(capability, half=half) == 0 for width in widths)
    if grouped or query.shape[-1] != key.shape[-1] or not aligned:
        return "math"
    return "efficient"


def _flash_has_a_kernel(query: Tensor, capability: tuple[int, int], dropout: float) -> bool:
    width = query.shape[-1]
    if capability < _FLASH_SINCE or width > _FLASH_HEAD_DIM:
        return False
    return capability not in _SMALL_SHARED_MEMORY or width <= 192 or (width > 224 and not dropout)


def _efficient_alignment(capability: tuple[int, int], *, half: bool) -> int:
    """Head dimensions are a multiple of it. Source: minimum_gemm_alignment."""
    if half:
        return 8 if capability >= (7, 0) else 1
    return 4 if capability >= (8, 0) else 1


def attention(  # noqa: PLR0917 - as the function that it stands for
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """In place of ``torch.nn.functional.scaled_dot_product_attention``; the same arguments, shapes and result."""
    if torch.is_autocast_enabled("cpu"):
        dtype = torch.get_autocast_dtype("cpu")
        query, key, value = (x.to(dtype) if x.dtype == torch.float32 else x for x in (query, key, value))
        if attn_mask is not None and attn_mask.is_floating_point():
            attn_mask = attn_mask.to(dtype)
    grouped = enable_gqa and query.shape[1] != key.shape[1]
    kernel = kernel_of(query, key, value, attn_mask, grouped=grouped, causal=is_causal, dropout=dropout_p)
    if kernel == "flash":
        return flash(query, key, value, dropout_p, causal=is_causal, scale=scale)
    if kernel == "efficient":
        mask = _aligned(_in_numbers(attn_mask, query.dtype), query, key)
        keeps = query.requires_grad or key.requires_grad or value.requires_grad
        out: Tensor = _efficient(query, key, value, mask, keeps, dropout_p, is_causal, scale=scale)[0]
        return out
    mask = _in_numbers(attn_mask, query.dtype)
    with torch.autocast("cpu", enabled=False):  # attention as a whole is on autocast's list, so that within it nothing is cast
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


def _in_numbers(mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """A boolean mask becomes one of numbers to add."""
    if mask is None or mask.dtype != torch.bool:
        return mask
    return torch.where(mask, 0.0, torch.scalar_tensor(float("-inf"), dtype=dtype))


def _aligned(mask: Tensor | None, query: Tensor, key: Tensor) -> Tensor | None:
    """Rows begin at multiples of 8 numbers: else there is a padded copy. It is spread over heads and rows without one."""
    if mask is None:
        return None
    if mask.stride(-1) != 1 or any(stride % _ALIGNMENT for stride in mask.stride()[:-1]):
        width = mask.shape[-1]
        mask = functional.pad(mask, (0, _ALIGNMENT - width % _ALIGNMENT))[..., :width]
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
