"""Answers to what a step asks of values that fake tensors do not have: routing is taken to be even, flags to be unset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from fullstep.job.job import Settings

_aten = torch.ops.aten


class Oracle(TorchDispatchMode):
    """Stands between the recorder and the fake mode, from the making of the model on.

    Args:
        settings: tokens and rows of a micro-batch, from which the rows of an even routing follow
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._tokens = settings.batch.tokens
        self._experts = 1
        self._answers: dict[Any, Callable[..., Any]] = {
            _aten._local_scalar_dense.default: _scalar,
            _aten.nonzero.default: self._nonzero,
            _aten.index.Tensor: self._index,
            _aten.bincount.default: lambda _, weights=None, minlength=0: torch.empty(max(minlength, 1), dtype=torch.long),
            _aten._grouped_mm.default: _grouped_product,
            _aten.split_with_sizes.default: _split,
            _aten._pin_memory.default: lambda tensor, *_, **__: tensor.clone(),
            _aten.is_pinned.default: lambda *_, **__: True,
            torch.ops._c10d_functional.wait_tensor.default: lambda tensor: tensor,
        }

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        answer = self._answers.get(func)
        return func(*args, **(kwargs or {})) if answer is None else answer(*args, **(kwargs or {}))

    def _nonzero(self, mask: Tensor) -> Tensor:
        """Rows of a mask that are set. A mask over tokens: an expert's even share of all that is chosen; other masks: every row, once.

        [experts, k, tokens] is of all experts, [k, tokens] of one of those that a mask with one dimension told of before.
        """
        rows = mask.numel()
        if mask.dim() == 1:
            self._experts = rows
        elif mask.shape[-1] == self._tokens:
            rows //= (mask.shape[0] if mask.dim() == 3 else 1) * (self._experts if mask.dim() == 2 else 1)
        return torch.empty((max(rows, 1), mask.dim()), dtype=torch.long, device=mask.device)

    def _index(self, tensor: Tensor, indices: list[Tensor | None]) -> Tensor:
        """A mask among the indices stands for the places where it is set (torch: ``expandTensors``); of a row of flags all are."""
        places: list[Tensor | None] = []
        for each in indices:
            if each is None or each.dtype != torch.bool:
                places.append(each)
            elif each.dim() == 1:
                places.append(torch.empty(each.numel(), dtype=torch.long, device=each.device))
            else:
                places += self._nonzero(each).unbind(1)
        taken: Tensor = _aten.index.Tensor(tensor, places)
        return taken


def _scalar(tensor: Tensor) -> float | int | bool:
    if tensor.dtype == torch.bool:
        return False
    return 1.0 if tensor.dtype.is_floating_point else 0


def _split(tensor: Tensor, sizes: list[int], dim: int = 0) -> Any:
    """Sizes that were read from a tensor, which are all 0 then (:func:`_scalar`), become even ones."""
    whole = tensor.shape[dim]
    if whole and sizes and not any(sizes):
        sizes = [whole // len(sizes) + (number < whole % len(sizes)) for number in range(len(sizes))]
    return _aten.split_with_sizes.default(tensor, sizes, dim)


def _grouped_product(
    a: Tensor, b: Tensor, offs: Tensor | None = None, bias: Tensor | None = None, out_dtype: torch.dtype | None = None
) -> Tensor:
    """The shape of a grouped matrix product, for any dtype: rows of ``a`` by groups, or the sum over rows by group, or batched."""
    dtype = out_dtype or a.dtype
    shapes: dict[tuple[int, int], Callable[[], tuple[int, ...]]] = {
        (2, 3): lambda: (a.shape[0], b.shape[2]),
        (2, 2): lambda: (offs.shape[0], a.shape[0], b.shape[1]),  # type: ignore[union-attr]
        (3, 2): lambda: (a.shape[1], b.shape[1]),
        (3, 3): lambda: (a.shape[0], a.shape[1], b.shape[2]),
    }
    return torch.empty(shapes[a.dim(), b.dim()](), dtype=dtype, device=a.device)
