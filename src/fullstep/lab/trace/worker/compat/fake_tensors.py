"""Modules of fake tensors can be moved and copied.

``nn.Module.to`` swaps fake parameters by a route that weak references block; ``copy.deepcopy`` of a fake tensor copies a storage that it
does not have, which damages the heap.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from fullstep.lab.trace.worker.compat.unit import Unit

_swap = torch.utils.swap_tensors


def _swap_tensors(one: Tensor, other: Tensor) -> None:
    if isinstance(one, FakeTensor) and isinstance(other, FakeTensor):
        if one is not other:
            with torch.no_grad():
                one.data = other.detach()
        return
    _swap(one, other)


def _deepcopy(self: FakeTensor, memo: dict[int, Any]) -> Tensor:
    if id(self) in memo:
        kept: Tensor = memo[id(self)]
        return kept
    with torch.no_grad():
        copy: Tensor = self.detach().clone()
    if isinstance(self, torch.nn.Parameter):
        copy = torch.nn.Parameter(copy, requires_grad=self.requires_grad)
    else:
        copy.requires_grad_(self.requires_grad)
    memo[id(self)] = copy
    return copy


def _install() -> None:
    torch.utils.swap_tensors = _swap_tensors
    FakeTensor.__deepcopy__ = _deepcopy  # type: ignore[method-assign]
    from torch.optim import optimizer  # noqa: PLC0415
    from torch.utils import _foreach_utils  # noqa: PLC0415

    for supported in (optimizer._foreach_supported_types, _foreach_utils._foreach_supported_types):
        if FakeTensor not in supported:
            supported.append(FakeTensor)


def _self_test() -> None:
    import copy  # noqa: PLC0415

    with FakeTensorMode():
        module = torch.nn.Linear(4, 4)
        module.to(torch.bfloat16)
        assert module.weight.dtype == torch.bfloat16
        twin = copy.deepcopy(module)
        assert isinstance(twin.weight, torch.nn.Parameter)
        assert twin.weight.untyped_storage()._cdata != module.weight.untyped_storage()._cdata


FAKE_TENSORS = Unit(
    name="fake_tensors",
    why="moving a module of fake tensors fails, and copying one damages the heap; optimizers do not take them for tensors",
    install=_install,
    self_test=_self_test,
)
