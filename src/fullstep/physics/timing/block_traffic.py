"""All that a decoder block reads and writes between its matrix products."""

from __future__ import annotations

from functools import lru_cache

from fullstep.models import Block
from fullstep.physics.memory.kernels import FLOAT32
from fullstep.physics.memory.weights import ADAPTER_KINDS_ON_LINEARS
from fullstep.physics.timing import traffic
from fullstep.physics.timing.products import block_products
from fullstep.physics.timing.traffic import Traffic
from fullstep.physics.timing.workload import Workload

_COMPOSITE = frozenset({"gelu_new", "gelu_fast", "quick_gelu", "gelu_accurate"})
_READ_NORMED = ("query", "key", "value", "query_key_value", "query_down", "key_value_down", "gate", "up", "gate_up")
_NARROW_NORMS = ("query", "key", "query_latent", "key_value_latent")


@lru_cache(maxsize=2048)
def block_traffic(block: Block, work: Workload, hidden: int) -> Traffic:
    """Norms, rotation, scores, activation, sums, adapters, casts and experts' rows of one block and micro-batch.

    Args:
        block: its layers
        work: rows, degrees, kernels
        hidden: width of the stream

    Returns:
        bytes and kernels of forward and backward

    Source:
        the functions of ``traffic``

    Valid:
        Llama-3.1-8B in 16 bits, eager: about 0.75 MB per token and block forward; a fifth of the step of a 7B model on one A100
    """
    total = _norms(block, work, hidden).plus(_sums(block, work, hidden))
    return total.plus(_attention(block, work)).plus(_feed_forward(block, work, hidden)).plus(_adapters(block, work)).plus(_fp8(block, work))


def _norms(block: Block, work: Workload, hidden: int) -> Traffic:
    total = Traffic()
    shape = block.attention
    heads = {"query": shape.heads * shape.head_dim, "key": shape.key_value_heads * shape.head_dim}
    for norm in block.norms:
        width = heads.get(norm.place, norm.width)
        size = work.size if norm.place in _NARROW_NORMS else work.kernels.residual
        trains = work.kernels.trains_weights and norm.parameters > 0
        elements = work.tokens * width / work.tensor
        total = total.plus(traffic.norm_traffic(norm, elements, size, fused=work.fused, trains=trains))
    return total


def _sums(block: Block, work: Workload, hidden: int) -> Traffic:
    """Two sums with the stream, gradients of what several products read, and autocast's copies of a float32 stream."""
    elements = work.tokens * hidden / work.tensor
    total = Traffic().plus(traffic.residual_traffic(elements, work.kernels.residual, fused=work.fused), 2)
    roles = [linear.role for linear in block.linears]
    attention = sum(role in _READ_NORMED[:6] for role in roles)
    dense = sum(role in ("gate", "up", "gate_up") for role in roles)
    for readers in (attention, dense):
        if readers > 1:
            total = total.plus(traffic.shared_input_traffic(elements, work.size, readers))
    if block.dropouts:
        total = total.plus(traffic.dropout_traffic(elements, work.size), 2)
    if work.kernels.residual > work.size:
        cast = traffic.cast_traffic(elements, work.kernels.residual, work.size)
        total = total.plus(Traffic(cast, cast, 1, 1), attention + dense)
    return total


def _attention(block: Block, work: Workload) -> Traffic:
    shape, kernels = block.attention, work.kernels
    queries = work.tokens * shape.heads * shape.head_dim / work.tensor
    keys = work.tokens * shape.key_value_heads * shape.head_dim / work.tensor
    total = Traffic()
    if shape.rotary_fraction > 0:
        total = traffic.rotary_traffic((queries + keys) * shape.rotary_fraction, work.size, fused=work.fused)
    if kernels.repeats_keys and shape.key_value_heads < shape.heads:
        copied = (queries + keys) * work.size
        total = total.plus(Traffic(copied, copied, 1, 1), 2)
    if kernels.attention in ("eager", "math"):
        cells = float(kernels.rows * shape.heads) * kernels.sequence_tokens**2 / (work.tensor * work.context)
        softmax = FLOAT32 if kernels.attention == "math" or shape.eager_softmax == "float32" else work.size
        size = FLOAT32 if kernels.attention == "math" else work.size
        return total.plus(traffic.scores_traffic(cells, size, softmax_bytes=softmax)).plus(Traffic(0, 0, 3, 6))
    return total.plus(Traffic(0, 0, 2, 4))


def _feed_forward(block: Block, work: Workload, hidden: int) -> Traffic:
    shape = block.feed_forward
    composite = shape.activation in _COMPOSITE
    fused = work.fused_activation
    total = Traffic()
    rows, width = work.tokens, shape.intermediate / work.tensor
    if shape.experts:
        rows *= shape.experts_per_token
        here = shape.experts / work.expert
        total = traffic.experts_traffic(rows, hidden, work.size, experts=here, grouped=work.grouped_experts, fused=False)
        if shape.shared_intermediate:
            shared = work.tokens * shape.shared_intermediate / work.tensor
            total = total.plus(traffic.activation_traffic(shared, work.size, gated=shape.gated, composite=composite, fused=fused))
    return total.plus(traffic.activation_traffic(rows * width, work.size, gated=shape.gated, composite=composite, fused=fused))


def _adapters(block: Block, work: Workload) -> Traffic:
    adapter = work.kernels.adapter
    total = Traffic()
    if adapter is None or adapter.kind not in ADAPTER_KINDS_ON_LINEARS:
        return total
    for linear in block.linears:
        if linear.adapter_target not in adapter.targets or (linear.stacked and work.kernels.stacks_experts):
            continue
        rows = work.tokens * (max(1, block.feed_forward.experts_per_token) if linear.copies > 1 else 1)
        total = total.plus(
            traffic.adapter_traffic(
                rows, linear.inputs / work.tensor, linear.outputs, dropout=adapter.dropout, autocast=work.kernels.autocast,
                wide=adapter.element_bytes > work.size, fused=work.fused_adapters,
            )
        )  # fmt: skip
    return total


def _fp8(block: Block, work: Workload) -> Traffic:
    total = Traffic()
    if not work.fp8:
        return total
    for product in block_products(block, work, 0, first=False):
        if product.component not in ("adapters", "router"):
            made = traffic.fp8_traffic(product.rows, product.inputs, product.outputs, compiled=work.fused)
            total = total.plus(made, product.copies)
    return total
