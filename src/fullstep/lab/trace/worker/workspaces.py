"""What CUDA kernels allocate inside, which no operation's result shows.

Sources: flash-attention csrc/flash_attn/flash_api.cpp (mha_bwd: dq_accum, softmax_d, expanded dk and dv);
aten/src/ATen/native/transformers/cuda/attention_backward.cu and mem_eff_attention/kernel_backward.h, kernels/cutlassB.h (workspace_size,
delta, dispatch_cutlassB); aten/src/ATen/native/cuda/Reduce.cuh; aten/src/ATen/native/cuda/Embedding.cu and EmbeddingBackwardKernel.cu;
cuBLAS: one workspace per handle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from fullstep.hardware import Card, device_overheads
from fullstep.hardware.overheads import CUBLAS_HANDLES
from fullstep.lab.trace.worker.compat import capabilities
from fullstep.lab.trace.worker.reductions import column_sum_buffers

_aten = torch.ops.aten
_PROCESSORS = 132
"""streaming multiprocessors, of which the catalogue of cards says nothing: an H100's"""
_THREADS_PER_PROCESSOR = {(7, 5): 1024, (8, 6): 1536, (8, 7): 1536, (8, 9): 1536, (12, 0): 1536, (12, 1): 1536}
"""where it is not 2,048. Source: CUDA C++ programming guide, technical specifications per compute capability"""
_MOST_HEADS_SPLIT = 200
"""the memory-efficient kernel divides the keys so often that rows times heads times parts stays below it, where gradients need a buffer"""
_HEADER_BYTES = 16
"""of a tile of the query's gradient: a lock, a counter, padding"""
_MOST_TOKENS_UNSORTED = 3072
"""up to here the gradient of an embedding is added up without sorting"""
_TOKENS_PER_SUM = 10


class Workspaces:
    """Kernels' own buffers on one card.

    Args:
        card: None where the worksheet names none
    """

    def __init__(self, card: Card | None) -> None:
        self.matrix_product_bytes = device_overheads(card).cublas_workspace_bytes // CUBLAS_HANDLES
        self._inside: dict[Any, Callable[[Sequence[Any], Any], list[int]]] = {
            _aten._scaled_dot_product_flash_attention_backward.default: _flash_backward,
            _aten._scaled_dot_product_efficient_attention_backward.default: _efficient_backward,
            _aten.embedding_dense_backward.default: _embedding_backward,
            _aten.sum.dim_IntList: self._column_sum,
        }

    def inside(self, func: Any, args: Sequence[Any], out: Any) -> list[int]:
        """Bytes that the kernel of this operation takes while it runs, one after another."""
        formula = self._inside.get(func)
        return formula(args, out) if formula is not None else []

    def _column_sum(self, args: Sequence[Any], out: Any) -> list[int]:
        """A sum over all dimensions but the last, as the gradient of a norm's weight or of a bias is."""
        x = args[0]
        dims = args[1] if len(args) > 1 and args[1] is not None else []
        summed = {dim % x.dim() for dim in dims} if x.dim() else set()
        if x.dim() < 2 or x.dim() - 1 in summed or len(summed) != x.dim() - 1 or not x.numel() or x.stride(-1) != 1:
            return []
        columns = int(x.shape[-1])
        threads = _THREADS_PER_PROCESSOR.get(capabilities.capability(), 2048)
        buffers = column_sum_buffers(x.numel() // columns, columns, x.element_size(), _PROCESSORS, threads)
        return [sum(buffers)] if buffers else []


def _flash_backward(args: Sequence[Any], out: Any) -> list[int]:
    """dq is accumulated in float32, heads padded to 32 (to 256 above 192); one float32 per query; dk and dv per query head if grouped."""
    query, key = args[1], args[2]
    rows, heads, tokens, width = query.shape
    padded_tokens = -(-tokens // 128) * 128
    padded_width = -(-width // 32) * 32 if width <= 192 else 256
    buffers = [4 * rows * heads * padded_tokens * padded_width, 4 * rows * heads * padded_tokens]
    if key.shape[1] != heads:
        buffers += [rows * key.shape[2] * heads * width * query.element_size()] * 2
    return [sum(buffers) + _copied(args[0])]


def _efficient_backward(args: Sequence[Any], out: Any) -> list[int]:
    """dq is accumulated in float32, dk and dv too where they do not fit in registers; one float32 per query.

    In float32 that number per query is worked out by operations of its own: a product as large as the output, its sum and a copy of that.
    """
    query, key, value = args[1:4]
    rows, heads, queries, width = query.shape
    across, down, in_registers = _efficient_tile(query.dtype, max(width, value.shape[-1]))
    tiles = -(-queries // across) * -(-width // down)
    elements = tiles * (_HEADER_BYTES // 4 + across * down)
    if not in_registers:
        parts = max(min(-(-key.shape[2] // down), _MOST_HEADS_SPLIT // (rows * heads)), 1)
        elements += parts * down * sum(-(-each // across) * across for each in (width, value.shape[-1]))
    workspace_bytes = 4 * rows * heads * (-(-elements // 4) * 4)
    per_query_bytes = 4 * rows * heads * queries
    copied = _copied(args[0])
    inside = [per_query_bytes + workspace_bytes + copied]
    if query.dtype == torch.float32:
        inside.insert(0, 4 * args[0].numel() + 2 * per_query_bytes + copied)
    return inside


def _efficient_tile(dtype: torch.dtype, width: int) -> tuple[int, int, bool]:
    """(queries, keys) per tile of the kernel for heads of this width, and whether dk and dv stay in registers. Source: cutlassB.h."""
    since_ampere = capabilities.capability() >= (8, 0)
    half = dtype != torch.float32
    if width <= 64:
        return 64, 64, half
    small = capabilities.capability() in ((8, 6), (8, 9))
    if half and small and since_ampere and width <= 96:
        return 128, 64, True
    if not half and not since_ampere:
        return 64, 64, False
    if half and since_ampere and width <= 128:
        return (64, 64, False) if small else (128, 128, True)
    return 128, 64, half and width <= 128


def _embedding_backward(args: Sequence[Any], out: Any) -> list[int]:
    """Tokens are sorted, and up to 10 alike are summed into a float32 row; there are rows for the case that all tokens differ."""
    gradient, indices, vocabulary = args[:3]
    tokens = indices.numel()
    if tokens <= _MOST_TOKENS_UNSORTED:
        return []
    different = min(tokens, vocabulary)
    rows = tokens // _TOKENS_PER_SUM + different
    return [indices.element_size() * (3 * tokens + 2 * different + rows) + 4 * rows * gradient.shape[-1]]


def _copied(gradient: Tensor) -> int:
    """Bytes of the copy that is made where the output's gradient does not lie by [rows, tokens, heads, width]."""
    return 0 if gradient.transpose(1, 2).is_contiguous() else gradient.numel() * gradient.element_size()
