"""Optimizers that torch itself has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from fullstep.job.job import Optimizer

KINDS: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    "adamw": (torch.optim.AdamW, {}),
    "adam": (torch.optim.Adam, {}),
    "sgd": (torch.optim.SGD, {}),
    "sgd_momentum": (torch.optim.SGD, {"momentum": 0.9}),
}


def torch_optimizer(settings: Optimizer, parameters: Sequence[nn.Parameter], rate: float) -> torch.optim.Optimizer:
    """The optimizer in the implementation that the worksheet has.

    Args:
        settings: of one of torch's own
        parameters: that train, as the layout has them
        rate: learning rate
    """
    kind, keys = KINDS[settings.name]
    how = {"fused": True} if settings.implementation == "fused" else {"foreach": settings.implementation == "foreach"}
    return kind(parameters, lr=rate, **keys, **how)
