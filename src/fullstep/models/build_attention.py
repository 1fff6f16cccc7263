"""The attention half of a block: heads, projections, norms."""

from __future__ import annotations

from typing import Any, NamedTuple

from fullstep.models.architecture import AttentionPlan
from fullstep.models.reader import ConfigReader
from fullstep.models.shape import Linear, Norm, NormPlace


class Heads(NamedTuple):
    """How the heads divide a layer; widths in elements of one head."""

    query: int
    key_value: int
    width: int
    value_width: int
    query_rank: int = 0
    """latent attention: rank of the queries; 0: they are not compressed"""
    key_value_rank: int = 0
    rotated: int = 0
    """latent attention: elements of a head that carry the position"""


def read_heads(reader: ConfigReader, plan: AttentionPlan, hidden: int) -> Heads:
    """Heads of the config; without ``head_dim`` they divide the hidden size evenly."""
    count = reader.whole("num_attention_heads", high=10**6)
    key_value = reader.optional_whole("num_key_value_heads", high=10**6) or count
    if plan.latent:
        return _latent_heads(reader, hidden, count, key_value)
    width = reader.optional_whole("head_dim")
    if width is None:
        width = hidden // count
        if hidden % count or not width:
            found = f"found {count}, which does not divide hidden_size {hidden}"
            reader.fault("num_attention_heads", found, f"a divisor of {hidden}", beside=("hidden_size",))
    if count % key_value:
        where = "found" if reader.stated("num_key_value_heads") else "missing; its default is"
        found = f"{where} {key_value}, which does not divide the {count} heads"
        reader.fault("num_key_value_heads", found, f"a divisor of {count}", beside=("num_attention_heads",))
    return Heads(count, key_value, width, width)


def _latent_heads(reader: ConfigReader, hidden: int, count: int, key_value: int) -> Heads:
    rotated = reader.whole("qk_rope_head_dim")
    value = reader.optional_whole("v_head_dim") or hidden // count
    return Heads(
        count,
        key_value,
        reader.whole("qk_nope_head_dim") + rotated,
        value,
        reader.optional_whole("q_lora_rank") or 0,
        reader.whole("kv_lora_rank"),
        rotated,
    )


def rotary_fraction(reader: ConfigReader, plan: AttentionPlan, heads: Heads) -> float:
    """Share of a head that is rotated, 0 to 1."""
    if plan.latent:
        return heads.rotated / heads.width
    if isinstance(plan.rotary, str):
        elements = reader.optional_whole(plan.rotary)
        return min(1.0, elements / heads.width) if elements else 1.0
    if plan.rotary == 0:
        return 0.0
    parameters: Any = reader.raw("rope_parameters")
    stated = parameters.get("partial_rotary_factor") if isinstance(parameters, dict) else None
    for key in ("partial_rotary_factor", "rotary_pct"):
        if stated is None and reader.raw(key) is not None:
            stated = reader.number(key, low=0, high=1)
    return float(stated) if isinstance(stated, int | float) and 0 <= stated <= 1 else plan.rotary


def attention_linears(reader: ConfigReader, plan: AttentionPlan, hidden: int, heads: Heads) -> tuple[Linear, ...]:
    """Projections into and out of attention."""
    bias = reader.decide(plan.bias)
    output = Linear(
        name=plan.output,
        role="attention_output",
        inputs=heads.query * heads.value_width,
        outputs=hidden,
        bias=reader.decide(plan.output_bias),
    )
    if plan.latent:
        return (*_latent_linears(hidden, heads, bias), output)
    queries, keys = heads.query * heads.width, heads.key_value * heads.width
    if plan.fused:
        fused = Linear(name=plan.fused, role="query_key_value", inputs=hidden, outputs=queries + 2 * keys, bias=bias)
        return (fused, output)
    return (
        Linear(name=plan.query, role="query", inputs=hidden, outputs=queries, bias=bias),
        Linear(name=plan.key, role="key", inputs=hidden, outputs=keys, bias=bias),
        Linear(name=plan.value, role="value", inputs=hidden, outputs=keys, bias=bias),
        output,
    )


def _latent_linears(hidden: int, heads: Heads, bias: bool) -> tuple[Linear, ...]:
    queries = heads.query * heads.width
    keys_and_values = heads.query * (heads.width - heads.rotated + heads.value_width)
    query: tuple[Linear, ...] = (Linear(name="q_proj", role="query", inputs=hidden, outputs=queries),)
    if heads.query_rank:
        query = (
            Linear(name="q_a_proj", role="query_down", inputs=hidden, outputs=heads.query_rank, bias=bias),
            Linear(name="q_b_proj", role="query_up", inputs=heads.query_rank, outputs=queries),
        )
    down = heads.key_value_rank + heads.rotated
    return (
        *query,
        Linear(name="kv_a_proj_with_mqa", role="key_value_down", inputs=hidden, outputs=down, bias=bias),
        Linear(name="kv_b_proj", role="key_value_up", inputs=heads.key_value_rank, outputs=keys_and_values),
    )


def attention_norms(reader: ConfigReader, plan: AttentionPlan, heads: Heads, *, vectors: int, rotates: bool) -> tuple[Norm, ...]:
    """Norms inside attention. ``vectors``: learned vectors of the block's own norms; ``rotates``: by position, in this layer."""
    norms: list[Norm] = []
    if plan.latent:
        if heads.query_rank:
            norms.append(Norm(place="query_latent", kind="rms", width=heads.query_rank, parameters=heads.query_rank))
        norms.append(Norm(place="key_value_latent", kind="rms", width=heads.key_value_rank, parameters=heads.key_value_rank))
    if plan.norm is not None and (rotates or not plan.norm.only_rotated) and reader.decide(plan.norm.when):
        places: tuple[tuple[NormPlace, int], ...] = (("query", heads.query), ("key", heads.key_value))
        for place, count in places:
            width = heads.width * (count if plan.norm.span == "all" else 1)
            copies = count if plan.norm.span == "every_head" else 1
            kind = plan.norm.kind or reader.architecture.norm_kind
            norms.append(Norm(place=place, kind=kind, width=width, parameters=plan.norm.vectors * copies * width))
    if plan.inner_norm:
        width = heads.query * heads.value_width
        norms.append(Norm(place="attention_inner", kind="rms", width=width, parameters=vectors * width))
    return tuple(norms)
