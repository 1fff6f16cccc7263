"""Optimizers that torch itself has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from fullstep.job.job import Optimizer

Groups = list[dict[str, Any]]
KINDS: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    "adamw": (torch.optim.AdamW, {}),
    "adam": (torch.optim.Adam, {}),
    "sgd": (torch.optim.SGD, {}),
    "sgd_momentum": (torch.optim.SGD, {"momentum": 0.9}),
}


def torch_optimizer(settings: Optimizer, parameters: Sequence[nn.Parameter] | Groups, rate: float) -> torch.optim.Optimizer:
    """The optimizer in the implementation that the worksheet has.

    Args:
        settings: of one of torch's own
        parameters: that train, as the layout has them, or groups of them
        rate: learning rate
    """
    kind, keys = KINDS[settings.name]
    return kind(parameters, lr=rate, **keys, **implementation(settings))


def implementation(settings: Optimizer) -> dict[str, bool]:
    """Arguments of torch's optimizers that say how many tensors a kernel takes."""
    return {"fused": True} if settings.implementation == "fused" else {"foreach": settings.implementation == "foreach"}


def by_mesh(parameters: Sequence[nn.Parameter]) -> Groups:
    """Kernels over many tensors do not take sharded and plain ones together. Source: transformers, trainer.py, create_optimizer."""
    found: dict[Any, list[nn.Parameter]] = {}
    for parameter in parameters:
        found.setdefault(getattr(parameter, "device_mesh", None), []).append(parameter)
    return [{"params": group} for group in found.values()]
