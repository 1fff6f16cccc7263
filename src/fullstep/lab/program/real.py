"""The program of a worksheet on a real device, with values: model, method, layout and optimizer, ready to train."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from fullstep.job import Settings
from fullstep.lab.program.blocks import find_blocks
from fullstep.lab.program.classes import build_model, config_of, load_model, require_positions
from fullstep.lab.program.dtypes import DTYPES
from fullstep.lab.program.method import adapted, checkpoint_activations
from fullstep.lab.program.optimizers import build_optimizer
from fullstep.lab.program.quantized import elements, quantize
from fullstep.lab.program.spread import Spread, spread
from fullstep.lab.program.wide_products import products_of

_DROPOUTS = (
    "attention_dropout", "attention_probs_dropout_prob", "attn_pdrop", "hidden_dropout", "hidden_dropout_prob", "resid_pdrop",
    "embd_pdrop", "dropout", "resid_dropout",
)  # fmt: skip
_OF_ATTENTION = ("attention_dropout", "attn_pdrop", "attention_probs_dropout_prob")


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What is trained, and by what."""

    spread: Spread
    optimizer: Optimizer
    settings: Settings
    device: torch.device
    vocabulary: int
    parameters: int
    """numbers in the model and its adapters: of packed weights those that they stand for"""
    trainable_parameters: int
    blocks: Sequence[nn.Module]
    """the repeated ones, in order"""

    @property
    def model(self) -> nn.Module:
        """As it is called."""
        return self.spread.model

    def autocast(self) -> torch.autocast:
        """Around forward: casts where the worksheet has it."""
        precision = self.settings.precision
        casts = precision.autocast and precision.compute != "float32"
        return torch.autocast(self.device.type, dtype=DTYPES[precision.compute], enabled=casts)

    def products(self) -> contextlib.AbstractContextManager[None]:
        """Around forward and backward: matrix products that this device can do. They are quick, and hold more for a moment."""
        return products_of(self.device)


def build_program(
    config: Mapping[str, Any], settings: Settings, device: torch.device, *, seed: int, dropout: float | None, rate: float,
    weights: str = "", attention_dropout: bool = True,
) -> Program:  # fmt: skip
    """The same values on every rank and for every number of ranks, until random numbers are drawn.

    Args:
        config: the model's Hugging Face config
        settings: of the worksheet
        device: of this rank
        seed: of the weights; the same gives the same
        dropout: share in the model where its class has it, and with 0 none in adapters either; None: as config and worksheet say
        rate: first learning rate
        weights: folder or hub id of a model whose weights are loaded; empty: random ones
        attention_dropout: False: none in attention, since kernels of processors that have none would keep its whole matrix

    Raises:
        InputError: the class cannot be built from this config, or (UnsupportedError) not with this method
    """
    torch.manual_seed(seed)
    random.seed(seed)
    of_class = config_of(config)
    for name in _DROPOUTS:
        if dropout is not None and isinstance(getattr(of_class, name, None), float):
            setattr(of_class, name, dropout)
        if not attention_dropout and name in _OF_ATTENTION and hasattr(of_class, name):
            setattr(of_class, name, 0.0)
    dtype, attention = DTYPES[settings.precision.weights], settings.step.attention
    model = load_model(weights, of_class, dtype, attention) if weights else build_model(of_class, dtype, attention, random=True)
    require_positions(model, settings.batch.sequence_tokens)
    found = find_blocks(model)
    blocks = list(model.get_submodule(found.path).children()) if found.path else []
    vocabulary = model.get_input_embeddings().num_embeddings  # type: ignore[operator, union-attr]
    if settings.method.is_quantized:
        quantize(model, settings, device)
    trained = adapted(model, settings)
    checkpoint_activations(trained if hasattr(trained, "gradient_checkpointing_enable") else model, blocks, settings)
    if dropout == 0:
        _silence(trained)
    sizes = [(elements(each), each.requires_grad) for each in trained.parameters()]
    placed = spread(trained, blocks, settings, device)
    optimizer = build_optimizer(settings, trained, [p for p in placed.model.parameters() if p.requires_grad], rate)
    return Program(
        spread=placed, optimizer=optimizer, settings=settings, device=device, vocabulary=int(vocabulary), blocks=blocks,
        parameters=sum(size for size, _ in sizes), trainable_parameters=sum(size for size, trains in sizes if trains),
    )  # fmt: skip


def _silence(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
