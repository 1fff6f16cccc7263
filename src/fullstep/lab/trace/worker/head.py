"""Puts a library's loss in the place of a class's output matrix and loss, whatever the class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fullstep.errors import Fault, UnsupportedError
from fullstep.job.habits import CASTS_IN_THE_LOSS, SHIFTS_LABELS
from fullstep.job.job import Settings
from fullstep.lab.program.dtypes import DTYPES
from fullstep.lab.program.versions import asked_transformers
from fullstep.lab.trace.worker.losses import CHUNKS, FusedLinearLoss, InPlaceLoss, next_labels

_STANDARD = "standard"


def impose_loss(model: nn.Module, head: nn.Module | None, settings: Settings) -> None:
    """The worksheet's loss kernel in the place of the class's own.

    ``inplace`` takes the place of the loss function alone. For ``fused`` and ``chunked`` the output matrix gives its input to the loss,
    which makes the logits itself, or none; what the class does to logits in between meets a tensor of one column.

    Args:
        model: of transformers
        head: its output matrix
        settings: the worksheet

    Raises:
        UnsupportedError: the model has no output matrix, or one with an adapter of its own
    """
    kernel = settings.step.loss
    base: Any = model
    asked = asked_transformers(settings)
    if kernel in (_STANDARD, "inplace"):
        if asked and asked < CASTS_IN_THE_LOSS and head is not None:
            _cast_at_once(_trained(model, head))
        if kernel == "inplace":
            base.loss_function = _in_place(settings)
        elif asked and asked < SHIFTS_LABELS:
            base.loss_function = _of_shifted_logits
        return
    if head is None:
        raise UnsupportedError(_fault(kernel, "the class has no output matrix of its own"))
    found = _trained(model, head)
    if type(found) is not nn.Linear:
        raise UnsupportedError(_fault(kernel, f"the output matrix is a {type(found).__name__}"))
    held = _Held(found, kernel)
    base.loss_function = _fused(held, settings) if kernel == "fused" else _chunked(held, settings)


def _cast_at_once(head: nn.Module) -> None:
    """Logits were cast where they are made, and nothing held the first ones. Source: transformers 4.45, modeling_llama.py."""
    make = head.forward
    head.forward = lambda hidden: make(hidden).float()  # type: ignore[method-assign]


def _of_shifted_logits(logits: Tensor, labels: Tensor, *_: Any, **__: Any) -> Tensor:
    wide = logits.float()
    shifted = wide[..., :-1, :].contiguous()  # beside the ones that it was copied from
    return cross_entropy(shifted.view(-1, shifted.shape[-1]), labels[..., 1:].contiguous().view(-1))


class _Held:
    """Between the call of the output matrix and that of the loss: the hidden states."""

    def __init__(self, head: nn.Linear, kernel: str) -> None:
        self.head, self.kernel = head, kernel
        self.logits_of: Callable[[Tensor], Tensor] = head.forward
        self._hidden: Tensor | None = None
        self._given: Tensor | None = None
        head.forward = self._skip  # type: ignore[method-assign]

    def _skip(self, hidden: Tensor) -> Tensor:
        if self._hidden is not None:
            raise UnsupportedError(_fault(self.kernel, "the class computes its loss by itself"))
        self._hidden = hidden
        self._given = hidden.new_empty((*hidden.shape[:-1], 1))
        return self._given

    def take(self, given: Tensor) -> tuple[Tensor, bool]:
        """(hidden states [rows, tokens, width], whether the class did anything to the logits)."""
        hidden, changed = self._hidden, given is not self._given
        self._hidden = self._given = None
        if hidden is None:
            raise UnsupportedError(_fault(self.kernel, "the class makes its logits without its output matrix"))
        return hidden, changed


def _trained(model: nn.Module, head: nn.Module) -> nn.Module:
    """The output matrix that is called: peft's copy where the head is among the modules that train beside the adapter."""
    output: Any = getattr(model, "get_output_embeddings", lambda: head)()
    copies = getattr(output, "modules_to_save", None)
    if copies is not None:
        return copies[next(iter(copies))]
    return head if output is None else output


def _fused(held: _Held, settings: Settings) -> Callable[..., Tensor]:
    widens = settings.step.framework == "fms_acceleration"

    def loss(logits: Tensor, labels: Tensor, *_: Any, **__: Any) -> Tensor:
        hidden, _changed = held.take(logits)  # caps and scales are inside the kernel
        flat = hidden.view(-1, hidden.shape[-1])
        return FusedLinearLoss.apply(flat, held.head.weight, held.head.bias, next_labels(labels), widens)

    return loss


def _chunked(held: _Held, settings: Settings) -> Callable[..., Tensor]:
    dtype = DTYPES[settings.step.loss_input_dtype]

    def loss(logits: Tensor, labels: Tensor, *_: Any, **__: Any) -> Tensor:
        hidden, changed = held.take(logits)
        if changed:
            raise UnsupportedError(_fault(held.kernel, "the class changes its logits before the loss"))
        targets = next_labels(labels).view(labels.shape)
        counted = (targets != -100).sum()
        parts = [held.logits_of(chunk) for chunk in hidden.tensor_split(CHUNKS, dim=1)]
        total: Tensor | float = 0.0
        for part, target in zip(parts, targets.tensor_split(CHUNKS, dim=1), strict=True):
            total += cross_entropy(part.reshape(-1, part.shape[-1]).to(dtype), target.reshape(-1), reduction="sum")
        return total / counted

    return loss


def _in_place(settings: Settings) -> Callable[..., Tensor]:
    """fms-acceleration copies the logits without the last position out of their float32 form; unsloth shifts the labels instead."""
    dtype = DTYPES[settings.step.loss_input_dtype]
    shifts_labels = settings.step.framework == "unsloth"

    def loss(logits: Tensor, labels: Tensor, *_: Any, **__: Any) -> Tensor:
        logits = logits.to(dtype)
        if shifts_labels:
            targets = next_labels(labels)
        else:
            logits = logits[..., :-1, :].contiguous()
            targets = labels[..., 1:].contiguous().view(-1)
        losses = InPlaceLoss.apply(logits.view(-1, logits.shape[-1]), targets)
        return losses.sum() / torch.count_nonzero(targets != -100)

    return loss


def _fault(kernel: str, why: str) -> Fault:
    return Fault("step.loss", f'"{kernel}", which cannot be traced here: {why}', _STANDARD, "`fullstep estimate` covers it.")
