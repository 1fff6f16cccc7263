"""Products in float32 where the processor has none of 16 bits: the same operands, results and gradients, rounded once."""

from __future__ import annotations

import contextlib

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from fullstep.lab.program.wide_products import products_of, wide_products

pytestmark = pytest.mark.real_classes


def _product(autocast: bool, wide: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    dtype = torch.float32 if autocast else torch.bfloat16
    layer = nn.Linear(24, 8, dtype=dtype)
    inputs = torch.randn(5, 24, dtype=dtype, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast), wide_products() if wide else contextlib.nullcontext():
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
    with wide_products():
        assert torch.equal(layer(inputs), nn.functional.linear(inputs, layer.weight, layer.bias))


@pytest.mark.parametrize("supported", [True, False])
def test_only_where_the_processor_lacks_them(monkeypatch: pytest.MonkeyPatch, supported: bool) -> None:
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: supported)
    plain = nn.functional.linear
    with products_of(torch.device("cpu")):
        assert (nn.functional.linear is plain) is supported
    with products_of(torch.device("cuda")):
        assert nn.functional.linear is plain
    assert nn.functional.linear is plain


def test_a_recomputed_forward_multiplies_as_the_first_one() -> None:
    """Else torch refuses what it meets anew in backward."""
    layer, inputs = nn.Linear(8, 8, dtype=torch.bfloat16), torch.randn(2, 8, dtype=torch.bfloat16, requires_grad=True)
    with wide_products():
        checkpoint(nn.Sequential(layer, nn.SiLU(), layer), inputs, use_reentrant=False).sum().backward()
    assert layer.weight.grad is not None and inputs.grad is not None
