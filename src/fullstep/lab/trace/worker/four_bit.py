"""A linear layer with a packed 4-bit base, as bitsandbytes has it: the same tensors and the same dequantized copy, without its kernels.

Source: bitsandbytes 0.50, nn/modules.py (Linear4bit), functional.py (quantize_4bit: blocks of 64, absmax; double quantization: absmax in
8 bits per block of 256 and an offset), autograd/_functions.py (MatMul4Bit: dequantizes in forward and again in backward, keeps no input).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

_BLOCK = 64
_OUTER_BLOCK = 256


class _PackedProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: PackedLinear) -> Tensor:
        ctx.layer = layer
        return torch.nn.functional.linear(x, layer.dequantized(x.dtype), layer.bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        gradient = gradients[0]
        return torch.matmul(gradient, ctx.layer.dequantized(gradient.dtype)), None


class PackedLinear(nn.Linear):
    """In place of an ``nn.Linear`` whose weight is frozen: two weights a byte and a scale per 64 of them.

    Args:
        layer: whose place it takes
        dtype: in which the product is computed
        twice: scales are quantized as well
    """

    def __init__(self, layer: nn.Linear, dtype: torch.dtype, *, twice: bool) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.compute_dtype = dtype
        self.twice = twice
        elements, device = layer.weight.numel(), layer.weight.device
        self.weight = nn.Parameter(torch.empty(((elements + 1) // 2, 1), dtype=torch.uint8, device=device), requires_grad=False)
        self.bias = layer.bias
        blocks = -(-elements // _BLOCK)
        self.register_buffer("code", torch.empty(16, device=device))
        if twice:
            self.register_buffer("absmax", torch.empty(blocks, dtype=torch.uint8, device=device))
            self.register_buffer("absmax_of_blocks", torch.empty(-(-blocks // _OUTER_BLOCK), device=device))
            self.register_buffer("code_of_blocks", torch.empty(256, device=device))
            self.register_buffer("offset", torch.empty((), device=device))
        else:
            self.register_buffer("absmax", torch.empty(blocks, device=device))

    def dequantized(self, dtype: torch.dtype) -> Tensor:
        """The weight, [out, in] in ``dtype``; with doubly quantized scales these come back to float32 first."""
        if self.twice:
            scales = torch.empty(self.absmax.shape, dtype=torch.float32, device=self.weight.device)
            scales = scales + self.offset
        return torch.empty(self.out_features, self.in_features, dtype=dtype, device=self.weight.device)

    def forward(self, x: Tensor) -> Tensor:
        given = x.dtype
        if not torch.is_autocast_enabled("cpu"):
            x = x.to(self.compute_dtype)
        else:
            x = x.to(torch.get_autocast_dtype("cpu"))
        if x.requires_grad:
            out: Tensor = _PackedProduct.apply(x, self)
        else:
            out = torch.nn.functional.linear(x, self.dequantized(x.dtype), self.bias)
        return out.to(given)


def quantize(model: nn.Module, *, keep: Sequence[nn.Module | None], dtype: torch.dtype, twice: bool) -> None:
    """Every ``nn.Linear`` of the model but ``keep`` (the head) becomes a packed one."""
    for name, module in list(model.named_modules()):
        if type(module) is nn.Linear and not any(module is each for each in keep):
            parent = model.get_submodule(name.rpartition(".")[0])
            setattr(parent, name.rpartition(".")[2], PackedLinear(module, dtype, twice=twice))
