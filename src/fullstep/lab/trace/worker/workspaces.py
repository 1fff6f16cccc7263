"""What CUDA kernels allocate inside, which no operation's result shows.

Sources: flash-attention csrc/flash_attn/flash_api.cpp (mha_bwd: dq_accum, softmax_d, expanded dk and dv);
aten/src/ATen/native/cuda/Reduce.cuh (setReduceConfig, global buffer of column sums); cuBLAS: one workspace per handle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from fullstep.hardware import Card, device_overheads
from fullstep.hardware.overheads import CUBLAS_HANDLES

_aten = torch.ops.aten
_DEFAULT_PROCESSORS = 132
"""streaming multiprocessors where the card is not known: an H100's"""


class Workspaces:
    """Kernels' own buffers on one card.

    Args:
        card: None where the worksheet names none
        multiprocessors: of the card; None: not known
    """

    def __init__(self, card: Card | None, multiprocessors: int | None = None) -> None:
        self.matrix_product_bytes = device_overheads(card).cublas_workspace_bytes // CUBLAS_HANDLES
        self._processors = multiprocessors or _DEFAULT_PROCESSORS
        self._inside: dict[Any, Callable[[Sequence[Any], Any], list[int]]] = {
            _aten._scaled_dot_product_flash_attention_backward.default: _flash_backward,
            _aten.sum.dim_IntList: self._column_sum,
        }

    def inside(self, func: Any, args: Sequence[Any], out: Any) -> list[int]:
        """Bytes of each buffer that the kernel of this operation takes while it runs."""
        formula = self._inside.get(func)
        return formula(args, out) if formula is not None else []

    def _column_sum(self, args: Sequence[Any], out: Any) -> list[int]:
        """A sum over all dimensions but the last, as the gradient of a norm's weight or of a bias is: partial sums in float32.

        Buffers: 4 bytes x columns x blocks of threads per column x 128, and a counter per group of 128 columns.
        """
        x = args[0]
        dims = args[1] if len(args) > 1 and args[1] is not None else []
        summed = {dim % x.dim() for dim in dims} if x.dim() else set()
        if x.dim() < 2 or x.dim() - 1 in summed or len(summed) != x.dim() - 1:
            return []
        columns = int(x.shape[-1])
        rows = x.numel() // max(columns, 1)
        per_thread, groups = -(-rows // 4), -(-columns // 128)
        if rows // 4 < 256 or groups > self._processors * 16:
            return []
        blocks = max(min(-(-self._processors * 16 // groups), -(-per_thread // 16)), -(-per_thread // 256))
        return [4 * columns * blocks * 128, 4 * groups] if blocks > 1 else []


def _flash_backward(args: Sequence[Any], out: Any) -> list[int]:
    """dq is accumulated in float32 with heads padded to 32 (64 above 128); one float32 per query; dk and dv per query head if grouped."""
    query, key = args[1], args[2]
    rows, heads, tokens, width = query.shape
    padded_tokens = -(-tokens // 128) * 128
    padded_width = -(-width // 32) * 32 if width <= 128 else -(-width // 64) * 64
    buffers = [4 * rows * heads * padded_tokens * padded_width, 4 * rows * heads * padded_tokens]
    if key.shape[1] != heads:
        buffers += [rows * key.shape[2] * heads * width * query.element_size()] * 2
    return [sum(buffers)]
