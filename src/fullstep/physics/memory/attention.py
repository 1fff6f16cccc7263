"""Attention as a block runs it: standard (grouped) and latent, with the kernel that CUDA takes."""

from __future__ import annotations

from fullstep.models import Block, Linear, Norm
from fullstep.physics.memory.kernels import Kernels
from fullstep.physics.memory.layers import FLOAT32, linear, norm
from fullstep.physics.memory.tape import Tape


def attention(tape: Tape, kernels: Kernels, source: int, block: Block, linears: dict[str, Linear], norms: dict[str, Norm]) -> int:
    """From the normed input to the output projection."""
    shape = block.attention
    if shape.kind == "latent":
        query, key, value = _latent_heads(tape, kernels, source, block, linears, norms)
        value_width = shape.heads * shape.value_head_dim
        query_width = key_width = shape.heads * shape.head_dim
    else:
        query_width = shape.heads * shape.head_dim
        key_width = shape.key_value_heads * shape.head_dim
        value_width = shape.key_value_heads * shape.value_head_dim
        query, key, value = _standard_heads(tape, kernels, source, block, linears, norms)
    compute, tokens = kernels.compute, kernels.tokens
    out_width = shape.heads * shape.value_head_dim
    grouped = key_width < query_width
    if grouped and (kernels.repeats_keys or kernels.attention == "eager"):
        key = tape.op((key,), tokens * query_width * compute)
        value = tape.op((value,), tokens * out_width * compute)
        key_width, value_width, grouped = query_width, out_width, False
    if kernels.attention == "eager":
        mixed = _eager(tape, kernels, query, key, value, shape.heads, out_width, softcap=shape.logit_softcap)
    else:
        # flash backward makes float32 sums for the query gradient, and whole heads of key and value gradients where they are shared
        expanded = 2 * query_width * compute if grouped else 0
        mixed = tape.op(
            (query, key, value), tokens * out_width * compute, saves=(query, key, value), saves_output=True,
            extra_saved=FLOAT32 * tokens * shape.heads,
            backward_work=tokens * (query_width * FLOAT32 + expanded),
        )  # fmt: skip
    inner = norms.get("attention_inner")
    if inner is not None:
        mixed = norm(tape, kernels, mixed, inner, out_width)
    return linear(tape, kernels, mixed, linears["attention_output"])


def _standard_heads(
    tape: Tape, kernels: Kernels, source: int, block: Block, linears: dict[str, Linear], norms: dict[str, Norm]
) -> tuple[int, int, int]:
    shape, tokens, compute = block.attention, kernels.tokens, kernels.compute
    query_width, key_width = shape.heads * shape.head_dim, shape.key_value_heads * shape.head_dim
    value_width = shape.key_value_heads * shape.value_head_dim
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
        query = _rotate(tape, query, tokens * query_width * compute)
        key = _rotate(tape, key, tokens * key_width * compute)
    del value_width
    return query, key, value


def _rotate(tape: Tape, source: int, size: float) -> int:
    """x * cos + rotate_half(x) * sin: keeps nothing of x (cos and sin have no gradient), needs three of it for a moment."""
    return tape.op((source,), size, forward_work=2 * size, backward_work=2 * size, cheap=True)


def _latent_heads(
    tape: Tape, kernels: Kernels, source: int, block: Block, linears: dict[str, Linear], norms: dict[str, Norm]
) -> tuple[int, int, int]:
    """Multi-head latent attention: compressed queries and keys are normed, expanded to all heads, and joined with their rotated part."""
    shape, tokens, compute = block.attention, kernels.tokens, kernels.compute
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


def _eager(tape: Tape, kernels: Kernels, query: int, key: int, value: int, heads: int, out_width: int, *, softcap: bool) -> int:
    """Scores, scale, mask, softmax in float32 (kept), back to the compute dtype (kept), times values."""
    cells = float(kernels.rows * heads * kernels.sequence_tokens**2)
    compute = kernels.compute
    scores = tape.op((query, key), cells * compute, saves=(query, key))
    scores = tape.op((scores,), cells * compute)
    if softcap:
        scores = tape.op((scores,), cells * compute, saves_output=True)
    scores = tape.op((scores,), cells * compute)
    shares = tape.op((scores,), cells * FLOAT32, saves_output=True, forward_work=cells * FLOAT32 if compute < FLOAT32 else 0)
    if compute < FLOAT32:
        shares = tape.op((shares,), cells * compute)
    return tape.op((shares, value), kernels.tokens * out_width * compute, saves=(shares, value))
