"""Seconds of one decoder block: its products, its attention, and what lies between them."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from fullstep.models import Block
from fullstep.physics.timing.block_traffic import block_traffic
from fullstep.physics.timing.flops import attention_flops
from fullstep.physics.timing.matrix import Number, product_seconds
from fullstep.physics.timing.products import Component, Product, block_products
from fullstep.physics.timing.rates import Rates, achieved, attention_rate, seconds_at, times
from fullstep.physics.timing.tally import Tally
from fullstep.physics.timing.workload import Workload
from fullstep.quantities import Bounds

_IN_8_BITS: tuple[Component, ...] = ("attention_projections", "feed_forward", "experts", "shared_experts")
_STORED_BYTES = {"nf4": 0.5625, "fp4": 0.5625, "mxfp4": 0.5625, "gptq": 0.5625, "int8": 1.0, "fp8": 1.0}
"""per element of a quantized weight with its scales"""
_UNPACKED_STEP_BY_STEP = 22.5
"""bytes per element: shift r0.5 w4, to int16 r4 w2, mask r2 w2, minus zero r2 w2, times scale r2 w2.
Source: AutoGPTQ, qlinear_cuda_old.py, forward with trainable=True"""


class BlockTime(NamedTuple):
    """Of one block and micro-batch."""

    once: Tally
    """what every block takes"""
    again: Tally
    """what a checkpointed one takes besides, in backward"""


@lru_cache(maxsize=2048)
def block_time(rates: Rates, block: Block, work: Workload, *, hidden: int, first: bool) -> BlockTime:
    """Forward, backward, and forward again where it is checkpointed.

    Args:
        rates: of the card
        block: its layers
        work: rows, degrees, kernels
        hidden: width of the stream
        first: the model's first block

    Returns:
        parts of one micro-batch
    """
    time = BlockTime(Tally(), Tally())
    for product in block_products(block, work, hidden, first=first):
        add_product(time, rates, product, work)
    _add_attention(time, rates, block, work)
    moved = block_traffic(block, work, hidden)
    time.once.add_traffic("between products", moved, rates)
    if work.recomputes not in ("nothing", "attention"):
        seconds = seconds_at(moved.forward_bytes, rates.memory_bytes_per_second)
        time.again.add("recomputation: between products", "backward", seconds, "memory")
        time.again.launches["again"] += moved.forward_launches
    return time


def add_product(time: BlockTime, rates: Rates, product: Product, work: Workload) -> None:
    """A product forward; backward those for the gradients of its input and weight; its weight made whole before each use."""
    number = _number(product, work)
    size = {"half": 2, "fp8": 1, "float32": 2 if work.emulates else 4}[number]
    rows, inputs, outputs, copies = product.rows, product.inputs, product.outputs, product.copies
    what = product.component.replace("_", " ")
    sides = [(rows, outputs, inputs)]
    if product.passes_gradient:
        sides.append((rows, inputs, outputs))
    if product.trains:
        sides.append((inputs, outputs, rows))
    made = [product_seconds(rates, *three, copies=copies, number=number, element_bytes=size) for three in sides]
    time.once.add(what, "forward", made[0].seconds, made[0].bound_by)
    for found in made[1:]:
        time.once.add(what, "backward", found.seconds, found.bound_by)
    time.once.launches["forward"] += 1
    time.once.launches["backward"] += len(made) - 1
    if product.recomputed:
        time.again.add(f"recomputation: {what}", "backward", made[0].seconds, made[0].bound_by)
        time.again.launches["again"] += 1
    if product.dequantized and product.component != "adapters":
        _add_dequantization(time, rates, product, work)


def _number(product: Product, work: Workload) -> Number:
    """The format in which it is multiplied; float32 adapters stay float32 where nothing casts them."""
    if work.size == 4 or work.emulates:
        return "float32"
    if work.fp8 and product.component in _IN_8_BITS:
        return "fp8"
    adapter = work.kernels.adapter
    wide = adapter is not None and adapter.element_bytes == 4 and not work.kernels.autocast and not work.fused_adapters
    return "float32" if wide and product.component == "adapters" else "half"


def _add_dequantization(time: BlockTime, rates: Rates, product: Product, work: Workload) -> None:
    """Stored weight r, 16-bit weight w, before forward, before it is computed again, and in backward; unpacked step by step it is kept."""
    elements = product.inputs * product.outputs * product.copies
    if work.unpacks_step_by_step:
        seconds, launches = seconds_at(elements * _UNPACKED_STEP_BY_STEP, rates.memory_bytes_per_second), 6
    else:
        stored = _STORED_BYTES.get(work.method.quantization, 2.0)
        seconds, launches = seconds_at(elements * (stored + work.size), rates.dequantization_bytes_per_second), 1
        time.once.add("dequantization", "backward", seconds, "memory")
        time.once.launches["backward"] += launches
    time.once.add("dequantization", "forward", seconds, "memory")
    time.once.launches["forward"] += launches
    if product.recomputed:
        time.again.add("dequantization", "backward", seconds, "memory")
        time.again.launches["again"] += launches


def _add_attention(time: BlockTime, rates: Rates, block: Block, work: Workload) -> None:
    shape, kernels = block.attention, work.kernels
    if kernels.attention in ("eager", "math") or work.emulates:  # no fused kernel takes bfloat16 on such a card
        forward, backward = _written_out(rates, block, work)
    else:
        flop = attention_flops(shape, work)
        length = min(kernels.sequence_tokens, kernels.window or kernels.sequence_tokens)
        pairs = flop.forward / (2 * (shape.head_dim + shape.value_head_dim))
        rate, back_rate = (_fused_rate(rates, work, shape.head_dim, length, pairs, backward=back) for back in (False, True))
        forward, backward = seconds_at(flop.forward, rate), seconds_at(flop.backward, back_rate)
    time.once.add("attention", "forward", forward, "compute")
    time.once.add("attention", "backward", backward, "compute")
    if work.recomputes in ("all", "all_but_last", "attention"):
        time.again.add("recomputation: attention", "backward", forward, "compute")


def _written_out(rates: Rates, block: Block, work: Workload) -> tuple[Bounds, Bounds]:
    """Scores and their sum of values as two batched products, and four backward."""
    shape, length = block.attention, work.kernels.sequence_tokens
    copies, rows = work.kernels.rows * shape.heads / work.tensor, length / work.context
    number: Number = "float32" if work.kernels.attention == "math" or work.size == 4 or work.emulates else "half"
    size = 4 if work.kernels.attention == "math" else work.size
    scores = product_seconds(rates, rows, length, shape.head_dim, copies=copies, number=number, element_bytes=size)
    values = product_seconds(rates, rows, shape.value_head_dim, length, copies=copies, number=number, element_bytes=size)
    forward = scores.seconds + values.seconds
    return forward, times(forward, 2)


def _fused_rate(rates: Rates, work: Workload, head_dim: int, length: float, pairs: float, *, backward: bool) -> Bounds:
    rate = attention_rate(rates, cudnn=work.cudnn, backward=backward, sequence_tokens=length, head_dim=head_dim, pairs=pairs)
    return times(rate, achieved("efficient_attention")) if work.kernels.attention == "efficient" else rate
