"""Losses of libraries whose kernels this machine cannot run: the same tensors, made and let go in the same order, by torch's operations.

Sources: Liger-Kernel 0.8.5, ops/fused_linear_cross_entropy.py, and the older copy of it in fms-acceleration (fused_ops/liger_ce), which
casts each chunk to float32 and back; torchtune 0.6, modules/loss/ce_chunked_output_loss.py; unsloth and fms-acceleration,
kernels/cross_entropy_loss.py.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

CHUNKS = 8
"""parts of the rows. Source: torchtune, CEWithChunkedOutputLoss, num_output_chunks"""
_IGNORED = -100
_FUSED_COLUMNS = 65536
"""a row longer than this has a partial sum per so many columns. Source: unsloth, kernels/cross_entropy_loss.py, MAX_FUSED_SIZE"""


def rows_of_a_chunk(tokens: int, width: int, words: int) -> int:
    """Rows whose logits are there at once: about as many elements as the hidden states have.

    >>> rows_of_a_chunk(4096, 4096, 128256)
    128
    """
    parts = -(-words // width)
    return min(1 << (-(-tokens // parts) - 1).bit_length(), tokens)


def next_labels(labels: Tensor) -> Tensor:
    """Labels shifted by one place, flat. Source: transformers, loss/loss_utils.py, ForCausalLMLoss."""
    return torch.nn.functional.pad(labels, (0, 1), value=_IGNORED)[..., 1:].contiguous().view(-1)


class FusedLinearLoss(torch.autograd.Function):
    """Output matrix and cross entropy a chunk of rows at a time; gradients are made in forward, and kept.

    Args of ``apply``: hidden states [tokens, width], output matrix [words, width], its bias or None, labels [tokens], and whether chunks
    are cast to float32 as the older kernel does.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, *rest: Any) -> Tensor:
        bias, labels, widens = rest
        run = _widened if widens else _in_one_buffer
        loss, *gradients = run(hidden, weight, bias, labels)
        ctx.save_for_backward(*(each if each is None else each.detach() for each in gradients))
        return loss

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> tuple[Tensor | None, ...]:
        return *ctx.saved_tensors, None, None


_Gradients = tuple[Tensor, Tensor, Tensor | None, Tensor | None]
"""loss and the gradients of hidden states, matrix and bias"""


def _in_one_buffer(hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor) -> _Gradients:
    """Liger 0.8: one buffer holds the logits of each chunk in turn and then their gradient, where no cast stands between."""
    of_hidden = torch.zeros_like(hidden)
    of_weight = torch.zeros_like(weight) if weight.requires_grad else None
    of_bias = torch.zeros_like(bias) if bias is not None else None
    losses = torch.zeros(hidden.shape[0], dtype=torch.float32)
    counted = labels != _IGNORED
    counted.sum()
    rows = rows_of_a_chunk(hidden.shape[0], hidden.shape[1], weight.shape[0])
    buffer = torch.empty((rows, weight.shape[0]), dtype=hidden.dtype) if _computes_as_given(hidden, weight) else None
    for start in range(0, hidden.shape[0], rows):
        x = hidden[start : start + rows]
        if buffer is not None:
            logits = torch.mm(x, weight.t(), out=buffer[: len(x)])
            logits = logits if bias is None else logits.add_(bias)
            torch.mm(logits, weight, out=of_hidden[start : start + rows])
        else:
            logits = x @ weight.t()
            logits = logits if bias is None else logits + bias
            of_hidden[start : start + rows] = logits @ weight
        if of_weight is not None:
            _accumulate(of_weight, logits, x)
        if of_bias is not None:
            torch.add(of_bias, logits.sum(dim=0), out=of_bias)
        del logits, x
    del buffer
    return torch.sum(losses), of_hidden, of_weight, of_bias


def _widened(hidden: Tensor, weight: Tensor, bias: Tensor | None, labels: Tensor) -> _Gradients:
    """The older kernel: logits of a chunk are cast to float32, and their gradient back; the chunk before is let go late."""
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else hidden.dtype
    of_weight = torch.zeros_like(weight) if weight.requires_grad else None
    of_hidden = torch.zeros_like(hidden)
    of_bias = torch.zeros_like(bias) if bias is not None else None
    losses = torch.zeros(hidden.shape[0], dtype=torch.float32)
    total = (labels != _IGNORED).sum()
    rows = rows_of_a_chunk(hidden.shape[0], hidden.shape[1], weight.shape[0])
    for start in range(0, hidden.shape[0], rows):
        x = hidden[start : start + rows]
        logits = x @ weight.t()
        logits = logits if bias is None else logits + bias
        logits = logits.float()
        logits = logits.to(dtype)
        gradient = logits * (1 / total)
        of_hidden[start : start + rows] = gradient @ weight
        if of_weight is not None:
            _accumulate(of_weight, logits, x)
        if of_bias is not None:
            torch.add(of_bias, logits.sum(dim=0), out=of_bias)
    return torch.sum(losses), of_hidden, of_weight, of_bias


def _computes_as_given(hidden: Tensor, weight: Tensor) -> bool:
    if hidden.dtype != weight.dtype:
        return False
    return not torch.is_autocast_enabled("cpu") or hidden.dtype == torch.get_autocast_dtype("cpu")


def _accumulate(of_weight: Tensor, gradient: Tensor, x: Tensor) -> None:
    """Adds a chunk's share to the matrix's gradient: in the product itself where tensor cores take the dtypes, else by way of a copy."""
    half = gradient.dtype in (torch.float16, torch.bfloat16)
    if half and of_weight.dtype == torch.float32:
        torch.addmm(of_weight, gradient.t(), x.to(gradient.dtype), out_dtype=torch.float32, out=of_weight)
    elif half and of_weight.dtype == gradient.dtype:
        torch.addmm(of_weight, gradient.t(), x.to(gradient.dtype), out=of_weight)
    else:
        of_weight += torch.mm(gradient.t(), x).float()


class InPlaceLoss(torch.autograd.Function):
    """Cross entropy whose backward writes the gradient over its input. ``apply``: logits [rows, words], labels [rows]; gives [rows]."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor) -> Tensor:
        rows, words = logits.shape
        losses = torch.empty(rows, dtype=torch.float32)
        parts = -(-words // _FUSED_COLUMNS)
        if parts == 1:
            sums = torch.empty(rows, dtype=torch.float32)
        else:
            sums = torch.logsumexp(torch.empty((rows, parts), dtype=torch.float32), dim=1)
            losses += sums
            losses.masked_fill_(labels == _IGNORED, 0)
        ctx.save_for_backward(logits, sums, labels)
        return losses

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> tuple[Tensor, None]:
        return ctx.saved_tensors[0], None
