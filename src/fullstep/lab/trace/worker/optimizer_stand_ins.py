"""Optimizers whose libraries need a GPU or a compiler: the same states and temporaries, without their kernels.

Sources: lion-pytorch 0.2.5, lion_pytorch.py; bitsandbytes 0.50.2, optim/optimizer.py (init_state, get_state_buffer); torchao 0.18.0,
optim/adam.py, subclass_8bit.py and subclass_4bit.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import torch
from torch import Tensor, nn

_BLOCK = 256
_BLOCK_OF_FOUR_BITS = 128
_SMALLEST_QUANTIZED = 4096
_SMALLEST_PAGED = 100_000
PAGED = "paged_"
"""states whose name begins so are in memory that the driver moves between GPU and host, beside torch's allocator"""
_RATE = 1e-4


class Lion(torch.optim.Optimizer):
    """One momentum, tensor by tensor: its copy, and the sum with the gradient, are there at once."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    if not self.state[p]:
                        self.state[p]["exp_avg"] = torch.zeros_like(p)
                    _follow_sign(p, self.state[p]["exp_avg"])


def _follow_sign(p: nn.Parameter, momentum: Tensor) -> None:
    p.data.mul_(1 - _RATE)
    update = momentum.clone().mul_(0.9).add(p.grad, alpha=0.1).sgn_()
    p.add_(update, alpha=-_RATE)
    momentum.mul_(0.99).add_(p.grad, alpha=0.01)


class Quantized(torch.optim.Optimizer):
    """bitsandbytes: states of 8 bits with a float32 scale per block of 256 elements, or of 32 bits; one kernel, no temporaries.

    Tensors below 4,096 elements, and ``wide`` ones, have float32 states. Paged: states of tensors from 100,000 elements are beside the
    allocator, their scales are not. Of a sharded parameter, this rank's shard counts.

    Args:
        parameters: that train
        states: per parameter
        bits: 8 or 32
        paged: large states are paged
        wide: ids of parameters that keep float32 states, as the Trainer has it for embeddings
    """

    def __init__(self, parameters: Iterable[nn.Parameter], states: int, *, bits: int, paged: bool, wide: Collection[int] = ()) -> None:
        super().__init__(parameters, {})
        self._states, self._bits, self._paged, self._wide = states, bits, paged, wide
        self._codes: dict[int, Tensor] = {}

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None and not self.state[p]:
                    self.state[p] = self._made(_local(p), wide=id(p) in self._wide)

    def _made(self, p: Tensor, *, wide: bool) -> dict[str, Tensor]:
        narrow = self._bits == 8 and p.numel() >= _SMALLEST_QUANTIZED and not wide
        prefix = PAGED if self._paged and p.numel() >= _SMALLEST_PAGED else ""
        found: dict[str, Tensor] = {}
        for number in range(self._states):
            if narrow:
                found[f"code{number}"] = self._code(number)
            found[f"{prefix}state{number}"] = torch.zeros_like(p, dtype=torch.uint8 if narrow else torch.float32)
        if narrow:
            blocks = -(-p.numel() // _BLOCK)
            found |= {f"scales{number}": torch.zeros(blocks, dtype=torch.float32) for number in range(self._states)}
        return found

    def _code(self, number: int) -> Tensor:
        """256 values, shared by all tensors."""
        if number not in self._codes:
            self._codes[number] = torch.zeros(256, dtype=torch.float32)
        return self._codes[number]


class LowBit(torch.optim.Optimizer):
    """torchao's AdamW with states of 8 or 4 bits; its step is compiled into one kernel, which needs no temporaries.

    Tensors below 4,096 elements, or that are no whole number of blocks, have states of their own dtype. Of a sharded parameter, this
    rank's shard counts.

    Args:
        parameters: that train
        bits: 8 (blocks of 256) or 4 (blocks of 128)
    """

    def __init__(self, parameters: Iterable[nn.Parameter], *, bits: int) -> None:
        super().__init__(parameters, {})
        self._bits, self._block = bits, _BLOCK if bits == 8 else _BLOCK_OF_FOUR_BITS

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None and not self.state[p]:
                    local = _local(p)
                    self.state[p] = {"step": torch.tensor(0.0)}
                    for name in ("exp_avg", "exp_avg_sq"):
                        self.state[p] |= {f"{name}{part}": value for part, value in self._made(local).items()}

    def _made(self, p: Tensor) -> dict[str, Tensor]:
        if p.numel() < _SMALLEST_QUANTIZED or p.numel() % self._block:
            return {"": torch.zeros_like(p)}
        return {
            "_codes": torch.zeros(p.numel() * self._bits // 8, dtype=torch.uint8),
            "_scale": torch.zeros(p.numel() // self._block),
            "_map": torch.zeros(2**self._bits),
        }


def _local(p: Tensor) -> Tensor:
    """This rank's part of a DTensor."""
    part: Tensor = p.to_local() if hasattr(p, "to_local") else p.data
    return part
