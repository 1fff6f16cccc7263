"""Products in float32 where the processor has none of 16 bits: the same operands, results and gradients, rounded once."""

from __future__ import annotations

import contextlib

import pytest
import torch
from torch import nn

from fullstep.lab.program.wide_products import _WideProducts, products_of

pytestmark = pytest.mark.real_classes


def _product(autocast: bool, wide: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    dtype = torch.float32 if autocast else torch.bfloat16
    layer = nn.Linear(24, 8, dtype=dtype)
    inputs = torch.randn(5, 24, dtype=dtype, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast), _WideProducts() if wide else contextlib.nullcontext():
        found = layer(inputs)
    found.float().square().sum().backward()
    assert inputs.grad is not None and layer.weight.grad is not None
    return found, inputs.grad, layer.weight.grad


@pytest.mark.parametrize("autocast", [False, True])
def test_results_and_gradients_are_those_of_16_bits(autocast: bool) -> None:
    for one, other in zip(_product(autocast, wide=True), _product(autocast, wide=False), strict=True):
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other, rtol=2**-7, atol=2**-7)


def test_float32_is_left_alone() -> None:
    layer, inputs = nn.Linear(4, 4), torch.randn(2, 4)
    with _WideProducts():
        assert torch.equal(layer(inputs), nn.functional.linear(inputs, layer.weight, layer.bias))


@pytest.mark.parametrize(("supported", "kind"), [(True, contextlib.nullcontext), (False, _WideProducts)])
def test_only_where_the_processor_lacks_them(monkeypatch: pytest.MonkeyPatch, supported: bool, kind: type) -> None:
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: supported)
    assert isinstance(products_of(torch.device("cpu")), kind)
    assert isinstance(products_of(torch.device("cuda")), contextlib.nullcontext)
