"""What the worksheet trains, over a base in 16 or 4 bits."""

from __future__ import annotations

from importlib.metadata import version

import torch
from torch import nn

from fullstep.errors import Fault, UnsupportedError
from fullstep.job.habits import STACKS_EXPERTS
from fullstep.job.job import Settings
from fullstep.lab.buildable import FOUR_BIT
from fullstep.lab.program.dtypes import DTYPES
from fullstep.lab.program.method import adapted
from fullstep.lab.program.versions import asked_transformers
from fullstep.lab.trace.worker.four_bit import PackedLinear, quantize


def apply_method(model: nn.Module, settings: Settings) -> nn.Module:
    """The model as it is trained; for an adapter, peft's model around it. Call it inside the fake mode.

    Raises:
        UnsupportedError: this version of peft does not have the kind, or refuses it for this model
    """
    if settings.method.quantization in FOUR_BIT:
        _four_bit(model, settings)
    return adapted(model, settings)


def _four_bit(model: nn.Module, settings: Settings) -> None:
    """Packs the base; all is frozen, and what is not packed goes to float32 if so stated, as ``prepare_model_for_kbit_training`` does."""
    method = settings.method
    head = getattr(model, "get_output_embeddings", lambda: None)()
    compute = DTYPES[settings.precision.compute]
    storage = compute if settings.layout.is_fsdp else torch.uint8
    quantize(model, keep=(head,), dtype=compute, storage=storage, twice=method.double_quantization)
    asked = asked_transformers(settings)
    if asked and asked < STACKS_EXPERTS and any(parameter.dim() > 2 for parameter in model.parameters()):
        found = f"{'.'.join(map(str, asked))}, which packs every expert; transformers {version('transformers')} has them as one parameter"
        allowed = f"transformers {STACKS_EXPERTS[0]}, which leaves the experts unpacked, or none"
        raise UnsupportedError(Fault("step.framework_version", found, allowed, "`fullstep estimate` covers both."))
    packed = {id(module.weight) for module in model.modules() if isinstance(module, PackedLinear)}  # may pass for a 16-bit dtype
    for parameter in model.parameters():
        parameter.requires_grad_(False)
        if method.upcast_unquantized and id(parameter) not in packed and parameter.dtype in (torch.float16, torch.bfloat16):
            parameter.data = parameter.data.to(torch.float32)
