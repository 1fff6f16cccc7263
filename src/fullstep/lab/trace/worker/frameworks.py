"""What a training framework puts in the place of the class's own operations, and what the trace says where it stands in for one.

Sources: unsloth kernels/rms_layernorm.py (Fast_RMS_Layernorm keeps the input, the scale and one float32 number per row; the result has the
input's dtype), kernels/rope_embedding.py (rotates in place, forward and backward; keeps the tables). fms-acceleration's
fused-ops-and-kernels plug-in takes the same kernels.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor, nn

from fullstep.job import Settings
from fullstep.job.habits import version_numbers
from fullstep.lab.program.versions import asked_transformers
from fullstep.lab.trace.worker.compat.dropout import FusedRmsNorm
from fullstep.ledger import Caution

FUSES_KERNELS = ("unsloth", "fms_acceleration")
OWN_CLASSES = ("torchtune", "torchtitan", "litgpt", "megatron")
"""frameworks with model classes of their own"""
_ROTARY = ("apply_rotary_pos_emb", "apply_multimodal_rotary_pos_emb")


def impose(model: nn.Module, settings: Settings) -> None:
    """The framework's kernels in the place of the class's operations."""
    if settings.step.framework not in FUSES_KERNELS:
        return
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm") and isinstance(getattr(module, "weight", None), nn.Parameter):
            module.forward = _norm_of(module)  # type: ignore[method-assign]
        file: Any = sys.modules.get(type(module).__module__)
        for name in _ROTARY:
            if hasattr(file, name):
                setattr(file, name, _rotated)


def notes(settings: Settings) -> list[Caution]:
    """Where the traced program is not the framework's own."""
    step = settings.step
    found = []
    if step.framework in OWN_CLASSES:
        text = f"{step.framework} has model classes of its own: that of transformers was traced in their place"
        found.append(Caution("F125", text))
    asked, installed = asked_transformers(settings), version("transformers")
    if asked and version_numbers(installed)[: len(asked)] != asked:
        stated = ".".join(map(str, asked))
        text = f"transformers {installed} was traced, not {stated}: classes keep other tensors in other versions"
        found.append(Caution("F123", text))
    return found


def _norm_of(module: nn.Module) -> Any:
    width = module.weight.numel()  # FSDP puts a shard in the place of the weight

    def forward(x: Tensor) -> Tensor:
        return FusedRmsNorm.apply(x, module.weight, width)

    return forward


class _Rotation(torch.autograd.Function):
    """In place both ways: no tensor is made."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return gradients[0], None, None


def _rotated(query: Tensor, key: Tensor, cos: Tensor, sin: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
    return _Rotation.apply(query, cos, sin), _Rotation.apply(key, cos, sin)
