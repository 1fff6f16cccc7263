"""Kernels that the worksheet names and that this machine cannot run: stand-ins with the same tensors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from fullstep.errors import Fault
from fullstep.job.job import Settings
from fullstep.lab.trace.worker import offload, optimizers
from fullstep.lab.trace.worker.compat.attention import flash
from fullstep.lab.trace.worker.head import impose_loss
from fullstep.lab.trace.worker.model import DTYPES, FLASH
from fullstep.lab.trace.worker.recorder import Recorder

_ESTIMATE = "`fullstep estimate` covers it."


def refuse(settings: Settings) -> list[Fault]:
    """What of the step's kernels and dtypes cannot be traced."""
    step, layout = settings.step, settings.layout
    faults = [*optimizers.refuse(settings), *offload.refuse(settings), *_dtypes(settings)]
    if step.compile:
        found = "true, which cannot be traced: the compiler decides what is kept"
        faults.append(Fault("step.compile", found, "false", _ESTIMATE))
    if step.loss in ("fused", "chunked") and layout.tensor > 1:
        found = f'"{step.loss}" with layout.tensor = {layout.tensor}: the output matrix is cut'
        faults.append(Fault("step.loss", found, "standard, inplace", _ESTIMATE))
    if step.loss == "standard" and step.loss_input_dtype != "float32":
        found = f'"{step.loss_input_dtype}" with the loss of transformers, which casts logits to float32'
        faults.append(Fault("step.loss_input_dtype", found, "float32", _ESTIMATE))
    return faults


def _dtypes(settings: Settings) -> list[Fault]:
    precision, layout = settings.precision, settings.layout
    faults = []
    if precision.compute == "fp8":
        faults.append(Fault("precision.compute", '"fp8", whose kernels cannot be traced', "float32, bfloat16, float16", _ESTIMATE))
    elif precision.compute != precision.weights and not (precision.autocast or settings.method.is_quantized or offload.is_sharded(layout)):
        found = f'"{precision.compute}" with {precision.weights} weights, and neither autocast nor FSDP casts them'
        faults.append(Fault("precision.compute", found, precision.weights, "Or precision.autocast = true."))
    trained = optimizers.trained_dtype(settings)
    if precision.gradients != trained and not precision.master_weights:
        found = f'"{precision.gradients}": torch keeps gradients in the dtype of what trains, here {trained}'
        faults.append(Fault("precision.gradients", found, trained, _ESTIMATE))
    if layout.strategy == "ddp" and precision.reduce != precision.gradients:
        found = f'"{precision.reduce}" with ddp, which reduces gradients as they are'
        faults.append(Fault("precision.reduce", found, precision.gradients, _ESTIMATE))
    return faults


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

    dtype = DTYPES.get(settings.precision.compute, DTYPES["bfloat16"])

    halves = (DTYPES["float16"], DTYPES["bfloat16"])

    def attention(
        _: nn.Module, query: Tensor, key: Tensor, value: Tensor, *__: Any, dropout: float = 0.0, scaling: float | None = None, **___: Any
    ) -> Any:  # fmt: skip
        query, key, value = (x if x.dtype in halves else x.to(dtype) for x in (query, key, value))
        return flash(query, key, value, dropout, causal=True, scale=scaling).transpose(1, 2).contiguous(), None

    ALL_ATTENTION_FUNCTIONS.register(FLASH, attention)
    ALL_MASK_ATTENTION_FUNCTIONS.register(FLASH, ALL_MASK_ATTENTION_FUNCTIONS["flash_attention_2"])
