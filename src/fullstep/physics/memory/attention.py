"""Attention as a block runs it: standard (grouped) and latent, with the kernel that CUDA takes."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from fullstep.models import Block, Linear, Norm
from fullstep.physics.memory.adapters import padded_adapter
from fullstep.physics.memory.kernels import FLOAT32, Kernels
from fullstep.physics.memory.layers import linear, norm
from fullstep.physics.memory.tape import Tape


class Parts(NamedTuple):
    """A block with its linears by role and its norms by place."""

    block: Block
    linears: dict[str, Linear]
    norms: dict[str, Norm]


def attention(tape: Tape, kernels: Kernels, source: int, parts: Parts) -> int:
    """From the normed input to the output projection.

    Kept per token [bytes], in 16 bits: flash and efficient ``2 q + 2 k + 2 v + 2 out + 4 heads``; efficient also its mask,
    ``2 * length``, and keys and values copied to all heads; eager ``2 q + 2 k + 2 v + (4 + 2) * heads * length``. Projections and norms
    besides (see ``linear``, ``norm``). Latent attention: keys of ``n + r`` per head, values a view of the expanded latent.

    Example: Llama-3.1-8B (q = out = 4096, k = v = 1024, 32 heads) under flash: ``8192 + 2048 + 2048 + 8192 + 128 = 20,608``.

    Args:
        tape: the block so far
        kernels: which kernel, mask, dtype
        source: the normed input
        parts: the block with its linears by role and its norms by place

    Returns:
        the output projection's result

    Source:
        transformers 5.23, integrations/sdpa_attention.py, eager_attention_forward; derivatives.yaml of torch 2.13

    Valid:
        to the byte on traces of llama, qwen, gemma, mixtral, deepseek; float32 queries and keys (gptj) are not counted: 0.5 to 1 % below
            those traces. The efficient kernel's own workspace is not counted
    """
    shape = parts.block.attention
    latent = shape.kind == "latent"
    heads = (_latent_heads if latent else _standard_heads)(tape, kernels, source, parts)
    query_width, out_width = shape.heads * shape.head_dim, shape.heads * shape.value_head_dim
    groups = shape.heads if latent else shape.key_value_heads
    widths = (query_width, groups * shape.head_dim, groups * shape.value_head_dim)
    query, key, value = (_in_compute_dtype(tape, kernels, tensor, width) for tensor, width in zip(heads, widths, strict=True))
    if kernels.extra_keys:
        longer = 1 + kernels.extra_keys / kernels.sequence_tokens
        key, value = (tape.op((tensor,), tape.size(tensor) * longer, trains=True) for tensor in (key, value))
    grouped = groups < shape.heads
    if grouped and kernels.repeats_keys and groups > 1:  # of one head the repeated ones are a view
        key, value = (tape.op((tensor,), tape.size(tensor) * shape.heads / groups) for tensor in (key, value))
        grouped = False
    if kernels.context > 1 and kernels.exchange == "heads":  # for parts of the row: as many elements
        query, key, value = (tape.op((tensor,), tape.size(tensor)) for tensor in (query, key, value))
    if kernels.attention == "eager":
        mixed = _eager(tape, kernels, (query, key, value), parts)
    elif kernels.attention == "math":
        mixed = _math(tape, kernels, (query, key, value), parts)
    else:
        mixed = _in_one_kernel(tape, kernels, (query, key, value), parts, grouped=grouped)
    if kernels.context > 1 and kernels.exchange == "heads":
        mixed = tape.op((mixed,), tape.size(mixed))
    inner = parts.norms.get("attention_inner")
    if inner is not None:
        mixed = norm(tape, kernels, mixed, inner, out_width)
    return linear(tape, kernels, mixed, parts.linears["attention_output"])


def _in_one_kernel(tape: Tape, kernels: Kernels, heads: tuple[int, int, int], parts: Parts, *, grouped: bool) -> int:
    """flash or efficient: keeps its three inputs, its output, a float32 log-sum-exp per row and head, and the mask.

    Flash's output lies in memory as the queries do. Where these were joined of a rotated and an unrotated part (torch.cat), that is head by
    head, and the class copies it to token by token for the projection. Backward sums the queries' gradient in float32; where keys are
    grouped it makes gradients of keys and values for all heads first.
    """
    shape, tokens, compute = parts.block.attention, kernels.tokens, kernels.compute
    width = shape.heads * shape.head_dim
    ring_forward, ring_backward = ring_bytes(kernels, tokens * width * compute, tape.size(heads[1]) + tape.size(heads[2]))
    output = tape.op(
        heads, tokens * shape.heads * shape.value_head_dim * compute, saves=heads, saves_output=True,
        extra_saved=FLOAT32 * tokens * shape.heads + _mask_bytes(kernels),
        forward_work=ring_forward, backward_work=ring_backward + tokens * width * (FLOAT32 + (2 * compute if grouped else 0)),
    )  # fmt: skip
    joined = kernels.attention == "flash" and 0 < shape.rotary_fraction < 1 and not kernels.fused
    return tape.op((output,), tape.size(output)) if joined else output


def ring_bytes(kernels: Kernels, query_bytes: float, key_value_bytes: float) -> tuple[float, float]:
    """What attention over a divided row needs besides: (forward, backward) [bytes]; (0, 0) for a whole row or exchanged heads.

    ring: two buffers of keys and values, and three of the output while partial results are joined; backward two of keys and values, two of
    their gradients, one of the queries'. gather: keys and values of all ranks and the concatenated own ones, ``context + 1``, with four
    float32 tensors of the output; backward the same keys and values, float32 gradients of queries (one) and of keys and values (three), and
    each step's own in 16 bits.

    Example: gather, 4 ranks, queries of 8 MB and keys and values of 16 MB: forward ``5 * 16 + 8 * 8 = 144``, backward
    ``(5 + 6 + 1) * 16 + 3 * 8 = 216`` MB.

    Args:
        kernels: context ranks and how they exchange
        query_bytes: this rank's queries, or output
        key_value_bytes: this rank's keys and values together

    Source:
        torch 2.13, distributed/tensor/experimental/_context_parallel/_attention.py (_templated_ring_attention, _SDPAMerger,
        _AllGatherRotater); TransformerEngine, AttnFuncWithCPAndKVP2P

    Valid:
        gather read off the code for 16-bit tensors; ring roughly: versions of TransformerEngine keep more or fewer partial outputs
    """
    if kernels.context == 1 or kernels.exchange == "heads":
        return 0.0, 0.0
    if kernels.exchange == "ring":
        return 2 * key_value_bytes + 3 * query_bytes, 4 * key_value_bytes + query_bytes
    held = kernels.context + 1
    return held * key_value_bytes + 8 * query_bytes, (held + 6 + 1) * key_value_bytes + 3 * query_bytes


def _in_compute_dtype(tape: Tape, kernels: Kernels, tensor: int, width: int) -> int:
    """Autocast brings queries, keys and values to the compute dtype."""
    size = kernels.tokens * width * kernels.compute
    return tape.op((tensor,), size) if kernels.autocast and tape.size(tensor) > size and tape.size(tensor) == 2 * size else tensor


def _mask_bytes(kernels: Kernels) -> float:
    """rows x length x (length + virtual tokens) in the compute dtype."""
    if not kernels.masked:
        return 0.0
    return float(kernels.rows * kernels.sequence_tokens * (kernels.row_tokens + kernels.extra_keys) * kernels.compute)


def _standard_heads(tape: Tape, kernels: Kernels, source: int, parts: Parts) -> tuple[int, int, int]:
    linears, norms = parts.linears, parts.norms
    shape, tokens, compute = parts.block.attention, kernels.tokens, kernels.compute
    query_width, key_width = shape.heads * shape.head_dim, shape.key_value_heads * shape.head_dim
    fused = linears.get("query_key_value")
    joins = kernels.joins_heads and "query" not in norms and (fused is not None or "value" in linears)
    if fused is not None or joins:
        together = linear(tape, kernels, source, fused) if fused is not None and not joins else _joined_heads(tape, kernels, source, parts)
        value_width = shape.key_value_heads * shape.value_head_dim
        cast = kernels.autocast and tape.size(together) > tokens * (query_width + key_width + value_width) * compute
        copied = shape.rotary_fraction > 0 or cast
        # views of one tensor, unless rotation or autocast makes new ones; the value stays a view of it and keeps the whole alive
        value = tape.op((together,), tokens * value_width * compute) if cast else together
        query = tape.op((together,), tokens * query_width * compute if copied else 0, view=not copied)
        key = tape.op((together,), tokens * key_width * compute if copied else 0, view=not copied)
        return query, key, value
    query = linear(tape, kernels, source, linears["query"])
    key = linear(tape, kernels, source, linears["key"])
    value = linear(tape, kernels, source, linears["value"]) if "value" in linears else key
    if "query" in norms:
        query = norm(tape, kernels, query, norms["query"], query_width)
        key = norm(tape, kernels, key, norms["key"], key_width)
    if shape.rotary_fraction > 0 and not kernels.fused:
        query, key = _rotate(tape, query), _rotate(tape, key)
    return query, key, value


def _joined_heads(tape: Tape, kernels: Kernels, source: int, parts: Parts) -> int:
    """litgpt's one projection to queries, keys and values, with its own adapter; of a fused target it adapts queries and values."""
    linears, shape = parts.linears, parts.block.attention
    widths = (shape.heads * shape.head_dim, shape.key_value_heads * shape.head_dim, shape.key_value_heads * shape.value_head_dim)
    fused = linears.get("query_key_value")
    joined = fused if fused is not None else replace(linears["query"], outputs=sum(widths))
    output = linear(tape, kernels._replace(adapter=None), source, joined)
    adapter = kernels.adapter
    if adapter is None:
        return output
    adapted: tuple[int, ...]
    if fused is not None:
        adapted = (widths[0], widths[2]) if fused.adapter_target in adapter.targets else ()
    else:
        named = zip(("query", "key", "value"), widths, strict=True)
        adapted = tuple(width for role, width in named if linears[role].adapter_target in adapter.targets)
    return padded_adapter(tape, kernels, (source, output), (joined.inputs, adapted)) if adapted else output


def _rotate(tape: Tape, source: int) -> int:
    """x * cos + rotate_half(x) * sin: keeps nothing of x (cos and sin have no gradient), needs three of it for a moment."""
    size = tape.size(source)
    return tape.op((source,), size, forward_work=2 * size, backward_work=2 * size, cheap=True)


def _latent_heads(tape: Tape, kernels: Kernels, source: int, parts: Parts) -> tuple[int, int, int]:
    """Multi-head latent attention: compressed queries and keys are normed, expanded to all heads, and joined with their rotated part."""
    linears, norms = parts.linears, parts.norms
    shape, tokens, compute = parts.block.attention, kernels.tokens, kernels.compute
    head_width = tokens * shape.heads * shape.head_dim * compute
    if "query_down" in linears:
        low = linear(tape, kernels, source, linears["query_down"])
        if "query_latent" in norms:
            low = norm(tape, kernels, low, norms["query_latent"])
        query = linear(tape, kernels, low, linears["query_up"])
    else:
        query = linear(tape, kernels, source, linears["query"])
    compressed = linear(tape, kernels, source, linears["key_value_down"])
    latent_norm = norms.get("key_value_latent")
    latent = norm(tape, kernels, compressed, latent_norm, latent_norm.width) if latent_norm is not None else compressed
    expanded = linear(tape, kernels, latent, linears["key_value_up"])
    query = tape.op((query,), head_width, forward_work=head_width, backward_work=head_width)
    key = tape.op((expanded, compressed), head_width, backward_work=head_width)
    return query, key, expanded


def _eager(tape: Tape, kernels: Kernels, heads: tuple[int, int, int], parts: Parts) -> int:
    """Scores, scale, mask, softmax in float32 (kept), back to the compute dtype (kept), times values."""
    query, key, value = heads
    shape = parts.block.attention
    cells = float(kernels.rows * shape.heads * kernels.sequence_tokens * kernels.row_tokens)
    compute = kernels.compute
    scores = tape.op((query, key), cells * compute, saves=(query, key))
    scores = tape.op((scores,), cells * compute)
    if shape.logit_softcap:
        scores = tape.op((scores,), cells * compute, saves_output=True)
    scores = tape.op((scores,), cells * compute)
    joins_float32 = shape.sinks and kernels.stored == FLOAT32  # scores are joined with the sinks: torch.cat takes the wider dtype
    autocast_widens = kernels.autocast and (shape.eager_softmax == "plain" or joins_float32)
    widens = compute < FLOAT32 and (shape.eager_softmax == "float32" or autocast_widens)
    named: tuple[int, ...] = ()
    if widens:
        named = (scores,)  # a variable of the class names them until the softmax is done
        scores = tape.op((scores,), cells * FLOAT32)
    shares = tape.op((scores,), tape.size(scores), saves_output=True, holds=named)
    if widens:
        shares = tape.op((shares,), cells * compute)
    if parts.block.dropouts:
        shares = tape.op((shares,), cells * compute, extra_saved=cells)
    return tape.op((shares, value), kernels.tokens * shape.heads * shape.value_head_dim * compute, saves=(shares, value))


def _math(tape: Tape, kernels: Kernels, heads: tuple[int, int, int], parts: Parts) -> int:
    """torch's own attention where no fused kernel fits, all in float32: scaled queries and keys, values and the softmax are kept.

    Source: aten/src/ATen/native/transformers/attention.cpp, _scaled_dot_product_attention_math.
    """
    shape, widening = parts.block.attention, FLOAT32 / kernels.compute
    groups = shape.key_value_heads
    widths = (shape.heads * shape.head_dim, groups * shape.head_dim, groups * shape.value_head_dim)
    query, key, value = (
        tensor if widening == 1 else tape.op((tensor,), kernels.tokens * width * FLOAT32)
        for tensor, width in zip(heads, widths, strict=True)
    )
    query, key = (tape.op((tensor,), tape.size(tensor)) for tensor in (query, key))
    if kernels.rows > 1 and tape.size(key) < tape.size(query):  # spread over all heads for the product; of one row that is a view
        key, value = (tape.op((tensor,), tape.size(tensor) * shape.heads / groups) for tensor in (key, value))
    cells = float(kernels.rows * shape.heads * kernels.sequence_tokens * kernels.row_tokens * FLOAT32)
    scores = tape.op((query, key), cells, saves=(query, key))
    shares = tape.op((scores,), cells, saves_output=True)
    mixed = tape.op((shares, value), kernels.tokens * shape.heads * shape.value_head_dim * FLOAT32, saves=(shares, value))
    return mixed if widening == 1 else tape.op((mixed,), tape.size(mixed) / widening)
