"""The optimizer of a worksheet by the library that has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from fullstep.job import Settings
from fullstep.lab.buildable import optimizer_library
from fullstep.lab.program.torch_optimizers import KINDS, by_mesh, implementation, torch_optimizer

Parameters = Sequence[nn.Parameter]
ON_THE_TRAINER = frozenset(("transformers", "axolotl", "llamafactory", "unsloth", "fms_acceleration"))
"""frameworks that let transformers' Trainer make the optimizer"""


class Together(Optimizer):
    """Several optimizers as one: they step one after another, over states and groups that they share with it.

    Args:
        optimizers: without states yet
    """

    def __init__(self, optimizers: Sequence[Optimizer]) -> None:
        super().__init__([group for each in optimizers for group in each.param_groups], {})
        self._optimizers = optimizers
        for each in optimizers:
            each.state = self.state

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Each in its turn."""
        for each in self._optimizers:
            each.step()


def build_optimizer(settings: Settings, model: nn.Module, parameters: Parameters, rate: float) -> Optimizer:
    """The optimizer over the parameters that train.

    Args:
        settings: of a worksheet without :func:`fullstep.lab.buildable.library_faults`
        model: of transformers, or peft's around it: its embedding and head are treated apart by some
        parameters: that train, as the layout has them
        rate: learning rate
    """
    name = settings.optimizer.name
    if name in KINDS:
        return torch_optimizer(settings.optimizer, parameters, rate)
    if name == "muon":
        return Together(muon(settings, model, parameters, rate))
    if name == "adafactor":
        return adafactor(parameters, rate)
    return _MAKERS[optimizer_library(settings)](settings, model, parameters, rate)


def adafactor(parameters: Parameters, rate: float) -> Optimizer:
    """The one that transformers' Trainer takes (optim="adafactor")."""
    from transformers.optimization import Adafactor  # noqa: PLC0415

    return Adafactor(parameters, lr=rate, scale_parameter=False, relative_step=False)


def muon(settings: Settings, model: nn.Module, parameters: Parameters, rate: float) -> list[Optimizer]:
    """torch's Muon for matrices inside the model, AdamW for the embedding, the head and vectors, as its authors say."""
    edges = set(_edges(model))
    matrices = [each for each in parameters if each.dim() == 2 and id(each) not in edges]
    chosen = set(map(id, matrices))
    others = [each for each in parameters if id(each) not in chosen]
    found: list[Optimizer] = [torch.optim.Muon(matrices, lr=rate)] if matrices else []
    if others:
        found.append(torch.optim.AdamW(by_mesh(others), lr=rate, **implementation(settings.optimizer)))
    return found


def _edges(model: nn.Module) -> Iterator[int]:
    """Ids of the parameters of embedding and head."""
    for name in ("get_input_embeddings", "get_output_embeddings"):
        module = getattr(model, name, lambda: None)()
        if module is not None:
            yield from map(id, module.parameters())


def _of_bitsandbytes(settings: Settings, model: nn.Module, parameters: Parameters, rate: float) -> Optimizer:
    """As the Trainer makes them: 8-bit ones keep float32 states for embeddings. Source: transformers, trainer.py, create_optimizer."""
    optim: Any = import_module("bitsandbytes.optim")
    name = settings.optimizer.name
    kind: Any = optim.Lion if name == "lion_8bit" else optim.AdamW
    bits = 8 if name.endswith("_8bit") else 32
    if bits == 8 and settings.step.framework in ON_THE_TRAINER:
        manager = optim.GlobalOptimManager.get_instance()
        for module in model.modules():
            if isinstance(module, nn.Embedding):
                manager.register_module_override(module, "weight", {"optim_bits": 32})
    return kind(parameters, lr=rate, optim_bits=bits, is_paged=name.startswith("paged_"))  # type: ignore[no-any-return]


def _of_torchao(settings: Settings, model: nn.Module, parameters: Parameters, rate: float) -> Optimizer:
    optim: Any = import_module("torchao.optim")
    return optim.AdamW4bit(parameters, lr=rate)  # type: ignore[no-any-return]


def _of_lion_pytorch(settings: Settings, model: nn.Module, parameters: Parameters, rate: float) -> Optimizer:
    library: Any = import_module("lion_pytorch")
    return library.Lion(parameters, lr=rate)  # type: ignore[no-any-return]


_MAKERS: dict[str, Callable[[Settings, nn.Module, Parameters, float], Optimizer]] = {
    "bitsandbytes": _of_bitsandbytes, "torchao": _of_torchao, "lion-pytorch": _of_lion_pytorch,
}  # fmt: skip
