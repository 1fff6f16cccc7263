"""Attention as a block runs it: standard (grouped) and latent, with the kernel that CUDA takes."""

from __future__ import annotations

from typing import NamedTuple

from fullstep.models import Block, Linear, Norm
from fullstep.physics.memory.kernels import FLOAT32, Kernels
from fullstep.physics.memory.layers import linear, norm
from fullstep.physics.memory.tape import Tape


class Parts(NamedTuple):
    """A block with its linears by role and its norms by place."""

    block: Block
    linears: dict[str, Linear]
    norms: dict[str, Norm]


def attention(tape: Tape, kernels: Kernels, source: int, parts: Parts) -> int:
    """From the normed input to the output projection."""
    shape, linears = parts.block.attention, parts.linears
    if shape.kind == "latent":
        query, key, value = _latent_heads(tape, kernels, source, parts)
        value_width = shape.heads * shape.value_head_dim
        query_width = key_width = shape.heads * shape.head_dim
    else:
        query_width = shape.heads * shape.head_dim
        key_width = shape.key_value_heads * shape.head_dim
        value_width = shape.key_value_heads * shape.value_head_dim
        query, key, value = _standard_heads(tape, kernels, source, parts)
    compute, tokens = kernels.compute, kernels.tokens
    out_width = shape.heads * shape.value_head_dim
    query, key, value = (_in_compute_dtype(tape, kernels, *pair) for pair in ((query, query_width), (key, key_width), (value, value_width)))
    if kernels.extra_keys:
        tokens_of_keys = tokens + kernels.rows * kernels.extra_keys
        key, value = (tape.op((tensor,), tape.size(tensor) * tokens_of_keys / tokens, trains=True) for tensor in (key, value))
    grouped = key_width < query_width
    if grouped and kernels.repeats_keys and not (kernels.attention == "eager" and shape.key_value_heads == 1):
        key = tape.op((key,), tape.size(key) * query_width / key_width)
        value = tape.op((value,), tape.size(value) * out_width / value_width)
        key_width, value_width, grouped = query_width, out_width, False
    if kernels.attention == "eager":
        mixed = _eager(tape, kernels, (query, key, value), parts)
    else:
        # flash backward makes float32 sums for the query gradient, and whole heads of key and value gradients where they are shared
        expanded = 2 * query_width * compute if grouped else 0
        mixed = tape.op(
            (query, key, value), tokens * out_width * compute, saves=(query, key, value), saves_output=True,
            extra_saved=FLOAT32 * tokens * shape.heads + _mask_bytes(kernels),
            backward_work=tokens * (query_width * FLOAT32 + expanded),
        )  # fmt: skip
    inner = parts.norms.get("attention_inner")
    if inner is not None:
        mixed = norm(tape, kernels, mixed, inner, out_width)
    return linear(tape, kernels, mixed, linears["attention_output"])


def _in_compute_dtype(tape: Tape, kernels: Kernels, tensor: int, width: int) -> int:
    """Autocast brings queries, keys and values to the compute dtype."""
    size = kernels.tokens * width * kernels.compute
    return tape.op((tensor,), size) if kernels.autocast and tape.size(tensor) > size and tape.size(tensor) == 2 * size else tensor


def _mask_bytes(kernels: Kernels) -> float:
    """rows x length x (length + virtual tokens) in the compute dtype."""
    if not kernels.masked:
        return 0.0
    return float(kernels.rows * kernels.sequence_tokens * (kernels.sequence_tokens + kernels.extra_keys) * kernels.compute)


def _standard_heads(tape: Tape, kernels: Kernels, source: int, parts: Parts) -> tuple[int, int, int]:
    linears, norms = parts.linears, parts.norms
    shape, tokens, compute = parts.block.attention, kernels.tokens, kernels.compute
    query_width, key_width = shape.heads * shape.head_dim, shape.key_value_heads * shape.head_dim
    fused = linears.get("query_key_value")
    if fused is not None:
        together = linear(tape, kernels, source, fused)
        rotated = shape.rotary_fraction > 0
        # views of one tensor, unless rotation makes new ones; the value stays a view and keeps the whole alive
        value = together
        query = tape.op((together,), tokens * query_width * compute if rotated else 0, view=not rotated)
        key = tape.op((together,), tokens * key_width * compute if rotated else 0, view=not rotated)
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
    cells = float(kernels.rows * shape.heads * kernels.sequence_tokens**2)
    compute = kernels.compute
    scores = tape.op((query, key), cells * compute, saves=(query, key))
    scores = tape.op((scores,), cells * compute)
    if shape.logit_softcap:
        scores = tape.op((scores,), cells * compute, saves_output=True)
    scores = tape.op((scores,), cells * compute)
    joins_float32 = shape.sinks and kernels.stored == FLOAT32  # scores are joined with the sinks: torch.cat takes the wider dtype
    autocast_widens = kernels.autocast and (shape.eager_softmax == "plain" or joins_float32)
    widens = compute < FLOAT32 and (shape.eager_softmax == "float32" or autocast_widens)
    if widens:
        scores = tape.op((scores,), cells * FLOAT32)
    shares = tape.op((scores,), tape.size(scores), saves_output=True)
    if widens:
        shares = tape.op((shares,), cells * compute)
    if parts.block.dropouts:
        shares = tape.op((shares,), cells * compute, extra_saved=cells)
    return tape.op((shares, value), kernels.tokens * shape.heads * shape.value_head_dim * compute, saves=(shares, value))
