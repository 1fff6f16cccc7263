"""The packed linear layer, by hand from the source of bitsandbytes 0.50."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from fullstep.lab.trace.worker.four_bit import PackedLinear

pytestmark = pytest.mark.real_classes
IN, OUT, ROWS = 1024, 2048, 64
WEIGHT = 2 * IN * OUT
"""dequantized to 16 bits"""
BLOCKS = IN * OUT // 64


def layer(*, twice: bool, bias: bool = False, dtype: torch.dtype = torch.bfloat16) -> PackedLinear:
    return PackedLinear(nn.Linear(IN, OUT, bias=bias, dtype=torch.bfloat16), dtype, torch.uint8, twice=twice)


@pytest.mark.parametrize(
    ("twice", "scales"), [(False, 4 * BLOCKS), (True, BLOCKS + 4 * BLOCKS // 256 + 4 * 256 + 4)], ids=["once", "twice"]
)
def test_half_a_byte_per_weight_and_a_scale_per_64(recorder: Any, twice: bool, scales: int) -> None:
    packed = layer(twice=twice)
    assert not list(packed.buffers())  # FSDP1 would cast them to the compute dtype
    tensors = [*packed.parameters(), *packed.quant_state]
    assert sum(t.numel() * t.element_size() for t in tensors) == IN * OUT // 2 + scales + 4 * 16


def test_forward_holds_the_whole_weight_for_its_product(recorder: Any, worst: Any) -> None:
    packed, x = layer(twice=False), torch.zeros(ROWS, IN, dtype=torch.bfloat16, requires_grad=True)
    assert worst(lambda: packed(x)) == WEIGHT + 2 * ROWS * OUT


def test_doubly_quantized_scales_come_back_twice_beside_it(recorder: Any, worst: Any) -> None:
    packed, x = layer(twice=True), torch.zeros(ROWS, IN, dtype=torch.bfloat16, requires_grad=True)
    assert worst(lambda: packed(x)) == 2 * 4 * BLOCKS + WEIGHT + 2 * ROWS * OUT


def test_nothing_is_kept_and_backward_dequantizes_again(recorder: Any, worst: Any) -> None:
    packed, x = layer(twice=True), torch.zeros(ROWS, IN, dtype=torch.bfloat16, requires_grad=True)
    out = packed(x)
    saved: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: saved.append(tensor) or tensor, lambda tensor: tensor):
        packed(x)
    assert saved == []
    gradient = torch.zeros_like(out)
    assert worst(lambda: out.backward(gradient)) == max(4 * BLOCKS + WEIGHT, WEIGHT + 2 * ROWS * IN)


def test_float32_inputs_are_cast_to_the_compute_dtype_and_back(recorder: Any, worst: Any) -> None:
    packed, x = layer(twice=False), torch.zeros(ROWS, IN, requires_grad=True)
    assert packed(x).dtype == torch.float32
    assert worst(lambda: packed(x)) == 2 * ROWS * IN + WEIGHT + 2 * ROWS * OUT


def test_a_bias_is_cast_for_good(recorder: Any) -> None:
    packed = layer(twice=False, bias=True, dtype=torch.float16)
    packed(torch.zeros(ROWS, IN, dtype=torch.float16))
    assert packed.bias.dtype == torch.float16


SMALL = {
    "model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 8192, "tie_word_embeddings": False,
}  # fmt: skip
LINEARS = [(256, 256), (128, 256), (128, 256), (256, 256), (512, 256), (512, 256), (256, 512)]
"""(outputs, inputs) of a block's projections"""


def test_weights_of_a_whole_model(traced: Any) -> None:
    method = {"kind": "qlora", "rank": 8, "targets": "all-linear", "double_quantization": True}
    found = traced({"model": {"config": SMALL}, "batch": {"sequence_tokens": 128}, "method": method})
    packed = adapters = 0
    for outputs, inputs in LINEARS:
        blocks = outputs * inputs // 64
        parts = [outputs * inputs // 2, blocks, 4 * blocks // 256, 4 * 16, 4 * 256, 4]
        packed += sum(-(-part // 512) * 512 for part in parts)
        adapters += 4 * 8 * (outputs + inputs)
    unquantized = 4 * (2 * 8192 * 256 + 5 * 256)  # embedding, head and norms in float32
    assert found.trainable_parameters == 2 * adapters // 4
    assert {instant.holdings.weights for instant in found.instants} == {2 * (packed + adapters) + unquantized}


@pytest.mark.parametrize("kind", ["dora", "ia3"])
def test_other_adapters_on_a_packed_base(traced: Any, kind: str) -> None:
    sheet = {"model": {"config": SMALL}, "batch": {"sequence_tokens": 128}, "method": {"kind": kind, "quantization": "fp4"}}
    assert traced(sheet).trainable_parameters > 0


def test_a_block_is_recomputed_as_forward_made_it(traced: Any) -> None:
    """peft's layers ask whether autocast is on: told otherwise in backward, torch would refuse what they make of it."""
    method = {"kind": "ia3", "quantization": "nf4"}
    sheet = {"model": {"config": SMALL}, "batch": {"sequence_tokens": 128}, "method": method, "precision": {"autocast": True}}
    assert traced({**sheet, "step": {"activation_checkpointing": "full"}}).trainable_parameters == traced(sheet).trainable_parameters


def test_under_autocast_peft_does_not_cast_the_input_of_an_adapter_on_a_packed_base(traced: Any) -> None:
    kept = {}
    for quantization in ("none", "nf4"):
        sheet = {
            "model": {"config": SMALL}, "batch": {"sequence_tokens": 1024}, "precision": {"autocast": True, "compute": "bfloat16"},
            "method": {"kind": "lora", "quantization": quantization, "targets": ["gate_proj", "up_proj"], "upcast_unquantized": False},
        }  # fmt: skip
        kept[quantization] = next(instant.holdings.activations for instant in traced(sheet).instants if instant.at == "loss")
    assert kept["none"] - kept["nf4"] == 2 * 1024 * 256 * 2  # both projections of a block share their input, in 16 bits
