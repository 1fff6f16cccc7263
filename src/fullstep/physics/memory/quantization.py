"""Storage of a quantized base: packed weights, their constants, and what is left as it is."""

from __future__ import annotations

from fullstep.models import Linear


def quantized_bytes_per_weight(quantization: str, double: bool) -> float:
    """Storage of one quantized weight with its block constants [bytes].

    nf4, fp4: half a byte + one float32 per 64 weights; double: one byte per 64 and one float32 per 256 of those. int8: a byte; its row
    constants are counted by ``quantized_bytes``. gptq: half a byte + float16 scale and 4-bit zero per group of 128. mxfp4: half a byte
    + one byte per 32.

    Args:
        quantization: name of the format
        double: whether the constants are quantized too

    Returns:
        [bytes] per weight

    Source:
        Dettmers et al. 2023, QLoRA, section 3: constants of 0.5 bit become 0.127; OCP Microscaling 1.0 for mxfp4

    >>> quantized_bytes_per_weight("nf4", False)
    0.5625
    >>> round(8 * (quantized_bytes_per_weight("nf4", True) - 0.5), 3)
    0.127
    """
    if quantization in ("nf4", "fp4"):
        return 0.5 + (1 / 64 + 4 / (64 * 256) if double else 4 / 64)
    return {"int8": 1.0, "fp8": 1.0, "gptq": 0.5 + 2 / 128 + 0.5 / 128, "mxfp4": 0.5 + 1 / 32}[quantization]


def quantization_constant_bytes(linear: Linear, quantization: str, double: bool) -> float:
    """The part of bitsandbytes' 4-bit storage that is not the packed parameter: its quant_state, which no sharding divides."""
    if quantization not in ("nf4", "fp4"):
        return 0.0
    return linear.weight_elements * (quantized_bytes_per_weight(quantization, double) - 0.5)


def quantized_bytes(linear: Linear, quantization: str, double: bool) -> float:
    """Storage of one quantized linear: weights, constants, and per row (int8) or per column (gptq: g_idx) what comes with them."""
    per_copy = linear.inputs * linear.outputs * quantized_bytes_per_weight(quantization, double)
    if quantization in ("int8", "fp8"):
        per_copy += 4 * linear.outputs
    elif quantization == "gptq":
        per_copy += 4 * linear.inputs
    return linear.copies * per_copy


def is_quantized(linear: Linear, stacks_experts: bool) -> bool:
    """Experts stacked in one parameter are not replaced by 4-bit layers. Routers are: bitsandbytes replaces every linear but the head."""
    return not (linear.stacked and stacks_experts)
