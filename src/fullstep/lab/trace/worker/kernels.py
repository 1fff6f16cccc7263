"""Kernels that the worksheet names and that this machine cannot run: stand-ins with the same tensors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from fullstep.job.job import Settings
from fullstep.lab.program.classes import FLASH
from fullstep.lab.program.dtypes import DTYPES
from fullstep.lab.trace.worker import offload
from fullstep.lab.trace.worker.compat.attention import flash
from fullstep.lab.trace.worker.head import impose_loss
from fullstep.lab.trace.worker.recorder import Recorder


def impose(model: nn.Module, head: nn.Module | None, settings: Settings) -> None:
    """Puts the worksheet's kernels in the place of the class's own."""
    impose_loss(model, head, settings)
    if settings.step.attention == "flash":
        _register_flash(settings)


def around_forward(settings: Settings, recorder: Recorder) -> Callable[[], contextlib.AbstractContextManager[Any]]:
    """What stands around each forward."""
    if settings.step.activation_offload:
        return lambda: offload.activations_on_host(recorder)
    return contextlib.nullcontext


def _register_flash(settings: Settings) -> None:
    """The flash-attention package: no mask, heads of keys are not repeated, the result is [rows, tokens, heads, width]."""
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS  # noqa: PLC0415
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS  # noqa: PLC0415

    dtype = DTYPES[settings.precision.compute]
    halves = (DTYPES["float16"], DTYPES["bfloat16"])

    def attention(
        _: nn.Module, query: Tensor, key: Tensor, value: Tensor, *__: Any, dropout: float = 0.0, scaling: float | None = None, **___: Any
    ) -> Any:  # fmt: skip
        query, key, value = (x if x.dtype in halves else x.to(dtype) for x in (query, key, value))
        return flash(query, key, value, dropout, causal=True, scale=scaling).transpose(1, 2).contiguous(), None

    ALL_ATTENTION_FUNCTIONS.register(FLASH, attention)
    ALL_MASK_ATTENTION_FUNCTIONS.register(FLASH, ALL_MASK_ATTENTION_FUNCTIONS["flash_attention_2"])
