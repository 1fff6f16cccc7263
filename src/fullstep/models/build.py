"""From an architecture and a config to the model's shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from fullstep.models.adapters import DEFAULT_ADAPTER_TARGETS
from fullstep.models.architecture import Architecture, AttentionPlan
from fullstep.models.build_attention import Heads, attention_linears, attention_norms, read_heads, rotary_fraction
from fullstep.models.build_feed_forward import dense_layer, expert_layer
from fullstep.models.layers import layer_experts, layer_rotations, layer_windows
from fullstep.models.reader import LARGEST_LAYERS, LARGEST_SIZE, ConfigReader
from fullstep.models.shape import Attention, Block, ModelShape, Norm

_LANGUAGE_PART = "the language part of a model that takes more than text"
SIZE_KEYS = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size")
"""what every config ought to state, by the usual names"""
_DROPOUT_KEYS = (
    "attention_dropout", "hidden_dropout", "resid_pdrop", "attn_pdrop", "dropout", "activation_dropout",
    "residual_dropout", "resid_dropout",
)  # fmt: skip


def build_shape(config: Mapping[str, Any], architecture: Architecture, name: str, *, part_of: str = "") -> ModelShape:
    """The shape of a model of this architecture.

    Args:
        config: the keys of the config, as JSON values.
        architecture: of the config's model type.
        name: what the user calls the model.
        part_of: the model type of the whole where the config is the language part of a model that takes more than text.

    Raises:
        InputError: with every fault of the config.
    """
    reader = ConfigReader(config, architecture)
    reader.check_spelling(SIZE_KEYS)
    hidden = reader.whole("hidden_size")
    layers = reader.whole("num_hidden_layers", high=LARGEST_LAYERS)
    heads = read_heads(reader, architecture.attention, hidden)
    blocks, order = _blocks(reader, hidden, heads, layers)
    around = _around(reader, hidden)
    reader.raise_faults()
    return ModelShape(
        name=name,
        model_type=architecture.model_type,
        hidden=hidden,
        blocks=blocks,
        layers=order,
        embedding_name=architecture.embedding,
        default_adapter_targets=DEFAULT_ADAPTER_TARGETS.get(part_of or architecture.model_type, ()),
        block_class=architecture.block_class,
        covers=_LANGUAGE_PART if part_of else "",
        **around,
    )


def _norm_vectors(reader: ConfigReader) -> int:
    architecture = reader.architecture
    return (1 + reader.decide(architecture.norm_shift)) if reader.decide(architecture.norm_scale) else 0


class _Kind(NamedTuple):
    """What tells the blocks of one model apart."""

    window: int | None
    rotates: bool
    sparse: bool


def _blocks(reader: ConfigReader, hidden: int, heads: Heads, layers: int) -> tuple[tuple[Block, ...], tuple[int, ...]]:
    plan = reader.architecture.attention
    windows = layer_windows(reader, plan, layers)
    rotations = layer_rotations(reader, plan, windows)
    sparse = layer_experts(reader, reader.architecture.experts, layers)
    kinds: dict[_Kind, int] = {}
    order = tuple(kinds.setdefault(_Kind(*kind), len(kinds)) for kind in zip(windows, rotations, sparse, strict=True))
    blocks = tuple(_block(reader, hidden, heads, kind, mixed=any(windows) and not all(windows)) for kind in kinds)
    return blocks, order


def _block(reader: ConfigReader, hidden: int, heads: Heads, kind: _Kind, *, mixed: bool) -> Block:
    architecture = reader.architecture
    plan = architecture.attention
    layer = expert_layer(reader, hidden) if kind.sparse else dense_layer(reader, hidden)
    vectors = _norm_vectors(reader)
    norms = tuple(
        Norm(place=place, kind=architecture.norm_kind, width=hidden, parameters=vectors * hidden)
        for place, flag in architecture.norms
        if reader.decide(flag)
    )
    alibi = reader.decide(plan.alibi)
    attention = Attention(
        kind="latent" if plan.latent else "standard",
        heads=heads.query,
        key_value_heads=heads.key_value,
        head_dim=heads.width,
        value_head_dim=heads.value_width,
        window=kind.window,
        rotary_fraction=rotary_fraction(reader, plan, heads) if kind.rotates and not alibi else 0.0,
        alibi=alibi,
        logit_softcap=bool(reader.raw("attn_logit_softcapping")),
        sinks=plan.sinks,
        eager_softmax=plan.eager_softmax,
        supports_sdpa=architecture.supports_sdpa,
        broadcasts_keys=plan.broadcasts_keys and heads.key_value == 1 < heads.query,
    )
    return Block(
        label=_label(kind, plan, mixed=mixed),
        attention=attention,
        feed_forward=layer.feed_forward,
        linears=attention_linears(reader, plan, hidden, heads) + layer.linears,
        norms=norms + attention_norms(reader, plan, heads, vectors=vectors, rotates=kind.rotates) + layer.norms,
        other_parameters=layer.other_parameters + (heads.query if plan.sinks else 0) + plan.vectors_per_head_dim * heads.width,
        parallel_residual=reader.decide(architecture.parallel_residual),
        dropouts=any(reader.raw(key) is not None and reader.number(key, low=0, high=1) > 0 for key in _DROPOUT_KEYS),
    )


def _label(kind: _Kind, plan: AttentionPlan, *, mixed: bool) -> str:
    words = ["expert" if kind.sparse else "dense"]
    if mixed:
        words.append("sliding" if kind.window else "full")
    if not kind.rotates and plan.unrotated == "no_rope_layers":
        words.append("unrotated")
    return ", ".join(words)


def _around(reader: ConfigReader, hidden: int) -> dict[str, Any]:
    """Everything outside the blocks: embedding, positions, final norm, head."""
    architecture = reader.architecture
    vocabulary = reader.whole("vocab_size")
    width = reader.whole(architecture.embedding_width) if architecture.embedding_width else hidden
    positions = reader.optional_whole("max_position_embeddings", high=10 * LARGEST_SIZE)
    tied = reader.flag("tie_word_embeddings")
    head_bias = reader.decide(architecture.head_bias)
    projection = hidden * width if width != hidden else 0
    vectors = _norm_vectors(reader)
    learned = (positions or 0) + architecture.extra_positions if architecture.learned_positions else 0
    norm = Norm(place="attention_input", kind=architecture.norm_kind, width=hidden, parameters=vectors * hidden)
    return {
        "vocabulary": vocabulary,
        "embedding_parameters": vocabulary * width,
        "position_parameters": learned * hidden,
        "embedding_other_parameters": projection + (vectors * hidden if architecture.embedding_norm else 0),
        "final_norm": norm if reader.decide(architecture.final_norm) else None,
        "final_other_parameters": projection,
        "head_parameters": (0 if tied else vocabulary * width) + (vocabulary if head_bias else 0),
        "head_bias": head_bias,
        "tied": tied,
        "logit_softcap": bool(reader.raw("final_logit_softcapping")),
        "maximum_positions": positions,
    }
