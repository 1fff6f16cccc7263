"""How far two states of a training are apart, whatever number of ranks holds them."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer


class Largest(NamedTuple):
    """The largest difference of one kind of state, relative to the largest value of the tensor that it is in."""

    share: float
    tensor: str


def copy_of(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """This rank's part of all that trains and of its moments."""
    found: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        found[f"parameters {name}"] = _here(parameter).detach().clone()
        for kind, value in sorted(optimizer.state.get(parameter, {}).items()):
            if isinstance(value, Tensor) and value.dim():
                found[f"{kind} {name}"] = _here(value).detach().clone()
    return found


def largest_differences(one: dict[str, Tensor], other: dict[str, Tensor]) -> dict[str, Largest]:
    """By kind of state: parameters, exp_avg, exp_avg_sq. All ranks must call it with the same names.

    >>> largest_differences({"parameters w": torch.tensor([1.0, 4.0])}, {"parameters w": torch.tensor([2.0, 4.0])})
    {'parameters': Largest(share=0.25, tensor='w')}

    A value that is no number is infinitely far from one that is, and the same as another that has the same bits. So is infinity.
    """
    apart = torch.tensor([_apart(one[name], other[name]) for name in one], dtype=torch.float64)
    size = torch.tensor([_most(_finite(other[name].double())) for name in one], dtype=torch.float64)
    if dist.is_initialized():
        group = dist.new_group(backend="gloo")
        dist.all_reduce(apart, dist.ReduceOp.MAX, group=group)
        dist.all_reduce(size, dist.ReduceOp.MAX, group=group)
    found: dict[str, Largest] = {}
    for name, difference, most in zip(one, apart.tolist(), size.tolist(), strict=True):
        kind, _, tensor = name.partition(" ")
        share = difference if math.isinf(difference) else difference / most if most else float(difference > 0)
        if kind not in found or share > found[kind].share:
            found[kind] = Largest(share, tensor)
    return found


def round_state(model: nn.Module, optimizer: Optimizer) -> None:
    """Parameters that train and their moments lose the bits that bfloat16 does not have."""
    for parameter in model.parameters():
        if parameter.requires_grad:
            states = [value for value in optimizer.state.get(parameter, {}).values() if isinstance(value, Tensor) and value.dim()]
            for tensor in (parameter.detach(), *states):
                there = _here(tensor)
                there.copy_(there.to(torch.bfloat16).to(there.dtype))


def _here(tensor: Tensor) -> Tensor:
    """This rank's part."""
    to_local = getattr(tensor, "to_local", None)
    return tensor if to_local is None else to_local()


def _apart(one: Tensor, other: Tensor) -> float:
    """The largest difference of two parts of the same shape; infinite where one of two values is no finite number, bits apart."""
    ours, theirs = one.double(), other.double()
    odd = ~(ours.isfinite() & theirs.isfinite())
    if bool((odd & ~_same_bits(one, other)).any()):
        return math.inf
    return _most(_finite(ours) - _finite(theirs))


def _same_bits(one: Tensor, other: Tensor) -> Tensor:
    """Value by value."""
    if one.dtype != other.dtype:
        return one.double() == other.double()
    width = one.element_size()
    bits, others = (each.contiguous().reshape(-1).view(torch.uint8).reshape(-1, width) for each in (one, other))
    return (bits == others).all(dim=1).reshape(one.shape)


def _finite(values: Tensor) -> Tensor:
    return torch.where(values.isfinite(), values, torch.zeros_like(values))


def _most(values: Tensor) -> float:
    return float(values.abs().max()) if values.numel() else 0.0
