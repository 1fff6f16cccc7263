"""A linear layer with a packed 4-bit base, as bitsandbytes has it: the same tensors and the same dequantized copy, without its kernels.

Source: bitsandbytes 0.50.2, nn/modules.py (Linear4bit), functional.py (quantize_4bit: blocks of 64, absmax; double quantization: absmax in
8 bits per block of 256 and an offset), autograd/_functions.py (MatMul4Bit), backends/cuda/ops.py (gemm_4bit dequantizes the whole matrix
for more than 512 rows of a large one; kernels for fewer rows do without, in forward alone).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

_BLOCK = 64
_OUTER_BLOCK = 256


class _PackedProduct(torch.autograd.Function):
    """Nothing but the packed weight is kept: forward and backward dequantize it, each for its own product."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: PackedLinear, bias: Tensor | None) -> Tensor:
        ctx.layer = layer
        coarse, scales = layer.scales()
        weight = torch.empty(layer.out_features, layer.in_features, dtype=x.dtype)
        out = torch.nn.functional.linear(x, weight, bias)
        del coarse, scales
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, Tensor | None]:
        gradient = gradients[0]
        of_bias = gradient.sum(0) if ctx.needs_input_grad[2] else None
        return torch.matmul(gradient, ctx.layer.dequantize().to(gradient.dtype)), None, of_bias


class PackedLinear(nn.Linear):
    """In place of an ``nn.Linear`` whose weight is frozen: two weights a byte and a scale per 64 of them.

    Args:
        layer: whose place it takes
        dtype: in which the product is computed
        storage: dtype that the packed bytes pass for; FSDP takes floating-point parameters alone
        twice: scales are quantized as well
    """

    def __init__(self, layer: nn.Linear, dtype: torch.dtype, storage: torch.dtype, *, twice: bool) -> None:
        nn.Module.__init__(self)
        self.out_features, self.in_features = layer.weight.shape if isinstance(layer, nn.Linear) else reversed(layer.weight.shape)
        self.compute_dtype = dtype
        self.quantized_from = layer.weight.dtype
        self.twice = twice
        elements = layer.weight.numel()
        packed = torch.empty((-(-elements // (2 * storage.itemsize)), 1), dtype=storage)
        self.weight = nn.Parameter(packed, requires_grad=False)
        named: Any = self.weight
        named.compress_statistics, named.quant_type = twice, "nf4"
        self.bias = layer.bias
        blocks = -(-elements // _BLOCK)
        self.absmax = torch.empty(blocks, dtype=torch.uint8 if twice else torch.float32)
        self.offset = torch.empty(())
        self.quant_state = [torch.empty(16), self.absmax]
        """no buffers, as with bitsandbytes: FSDP1 would cast them"""
        if twice:
            self.quant_state += [torch.empty(-(-blocks // _OUTER_BLOCK)), torch.empty(256), self.offset]

    @property
    def W_q(self) -> nn.Parameter:  # noqa: N802
        """The packed weight. peft asks a layer that has this name to dequantize itself."""
        return self.weight

    def scales(self) -> tuple[Tensor, Tensor]:
        """A float32 per block of 64; where they were quantized themselves, before and after the offset is added."""
        if not self.twice:
            return self.absmax, self.absmax
        coarse = torch.empty(self.absmax.shape, dtype=torch.float32)
        return coarse, coarse + self.offset

    def dequantize(self) -> Tensor:
        """The weight, [out, in] in the dtype that it had before."""
        if self.twice:
            scales = torch.empty(self.absmax.shape, dtype=torch.float32)
            scales += self.offset
        return torch.empty(self.out_features, self.in_features, dtype=self.quantized_from)

    def forward(self, x: Tensor) -> Tensor:
        given = x.dtype
        x = x.to(self.compute_dtype)
        if self.bias is not None and self.bias.dtype != x.dtype:
            self.bias.data = self.bias.data.to(x.dtype)
        out: Tensor = _PackedProduct.apply(x, self, self.bias)
        return out.to(given)


def quantize(
    model: nn.Module, *, keep: Sequence[nn.Module | None], dtype: torch.dtype, storage: torch.dtype = torch.uint8, twice: bool
) -> None:  # fmt: skip
    """Every ``nn.Linear`` and ``Conv1D`` but ``keep`` (the head) becomes a packed one, and peft takes them for those of bitsandbytes.

    Args:
        model: of transformers
        keep: layers that stay as they are
        dtype: in which products are computed
        storage: bnb_4bit_quant_storage of transformers
        twice: scales are quantized as well
    """
    for name, module in list(model.named_modules()):
        if type(module) in (nn.Linear, Conv1D) and not any(module is each for each in keep):
            parent = model.get_submodule(name.rpartition(".")[0])
            setattr(parent, name.rpartition(".")[2], PackedLinear(module, dtype, storage, twice=twice))
    known: Any = model
    known.is_loaded_in_4bit = True
    _stand_in_for_bitsandbytes()


class _Absent:
    """A class of bitsandbytes of which there are no instances here."""


def _stand_in_for_bitsandbytes() -> None:
    """peft has adapters of its own for layers of bitsandbytes, which it knows by their class.

    They clone the base's output and, under autocast, do not cast their input. Source: peft 0.21, tuners/lora/bnb.py.
    """
    from peft import import_utils  # noqa: PLC0415

    package: Any = ModuleType("bitsandbytes")
    package.nn = ModuleType("bitsandbytes.nn")
    package.nn.Linear4bit, package.nn.Linear8bitLt, package.nn.Params4bit = PackedLinear, _Absent, _Absent
    for module in (package, package.nn):
        module.__spec__ = ModuleSpec(module.__name__, None)
        sys.modules[module.__name__] = module
    import_utils.is_bnb_available.cache_clear()
    import_utils.is_bnb_4bit_available.cache_clear()
