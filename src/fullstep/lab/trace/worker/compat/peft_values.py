"""Layers of peft that look at values while they run.

LoHa and LoKr throw a coin against ``module_dropout`` in every forward pass, also where it is 0, and would leave the adapter out for the
answer that a fake coin gives.
"""

from __future__ import annotations

from typing import Any

import torch

from fullstep.lab.trace.worker.compat.unit import Unit


class _TorchWithKeptModules:
    """The package torch as LoHa and LoKr see it: their coin always says that the adapter stays."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    @staticmethod
    def rand(*_: Any, **__: Any) -> float:
        return 1.0


def _install() -> None:
    from peft.tuners.loha import layer as loha  # noqa: PLC0415
    from peft.tuners.lokr import layer as lokr  # noqa: PLC0415

    loha.torch = lokr.torch = _TorchWithKeptModules()


def _self_test() -> None:
    from peft import LoHaConfig, LoKrConfig, get_peft_model  # noqa: PLC0415
    from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: PLC0415

    with FakeTensorMode(allow_non_fake_inputs=True):
        x = torch.ones(2, 8)
        for config in (LoHaConfig, LoKrConfig):
            model = get_peft_model(torch.nn.Sequential(torch.nn.Linear(8, 8)), config(r=2, target_modules=["0"]))
            assert model(x).requires_grad, config


PEFT_VALUES = Unit(
    name="peft_values",
    why="LoHa and LoKr leave their adapters out at the throw of a coin",
    install=_install,
    self_test=_self_test,
    libraries=("torch", "peft"),
)
