"""What is particular about one model type: the keys and defaults of its config and the make-up of its blocks.

An :class:`Architecture` is data. :mod:`fullstep.models.build` turns it and a config into a shape; the entries themselves
are in :mod:`fullstep.models.architectures`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from fullstep.models.shape import NormKind, NormPlace

if TYPE_CHECKING:
    from fullstep.models.reader import ConfigReader

Flag = bool | str
"""True, False, or the config key that decides; ``not KEY`` turns the key round."""

Windows = Literal[
    "none", "every", "all", "qwen", "qwen_moe", "alternate", "pattern", "first_pattern", "unrotated", "only_stated", "chunked", "local"
]

Derive = Callable[["ConfigReader"], Mapping[str, Any]]
"""Values that the config's own class works out from other keys; they stand in for keys that the config does not state."""

PRE_NORM: tuple[tuple[NormPlace, Flag], ...] = (("attention_input", True), ("feed_forward_input", True))
ONE_NORM: tuple[tuple[NormPlace, Flag], ...] = (("attention_input", True),)
POST_NORM: tuple[tuple[NormPlace, Flag], ...] = (("attention_output", True), ("feed_forward_output", True))
SANDWICH_NORM: tuple[tuple[NormPlace, Flag], ...] = (
    ("attention_input", True),
    ("attention_output", True),
    ("feed_forward_input", True),
    ("feed_forward_output", True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryKeyNorm:
    """Normalisation of queries and keys before the scores."""

    span: Literal["head", "every_head", "all"] = "head"
    """head: one scale of head_dim for all heads; every_head: a scale of its own for each; all: over all heads together"""
    kind: NormKind | None = None
    """None: as the block's own norms"""
    vectors: int = 1
    """2: scale and shift, 1: scale, 0: no weights"""
    when: Flag = True
    only_rotated: bool = False
    """layers without rotary positions go without"""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionPlan:
    """The projections of an attention layer by the names of their modules."""

    query: str = "q_proj"
    key: str = "k_proj"
    value: str = "v_proj"
    fused: str = ""
    """one projection to queries, keys and values in place of the three"""
    output: str = "o_proj"
    bias: Flag = False
    output_bias: Flag = False
    norm: QueryKeyNorm | None = None
    inner_norm: bool = False
    """a norm between attention and its output projection"""
    sinks: bool = False
    """one learned number per head in the softmax"""
    eager_softmax: Literal["float32", "scores", "plain"] = "float32"
    """see :class:`fullstep.models.shape.Attention`"""
    broadcasts_keys: bool = False
    """see :class:`fullstep.models.shape.Attention`; where there is one head of keys"""
    latent: bool = False
    """multi-head latent attention (DeepSeek): keys and values through a low rank"""
    rotary: float | str = 1.0
    """share of a head that is rotated, or the key that states how many of its elements are; the config's own
    ``partial_rotary_factor`` goes first"""
    alibi: Flag = False
    windows: Windows = "none"
    """which layers slide where the config has no ``layer_types`` (see :mod:`fullstep.models.layers`)"""
    unrotated: Literal["none", "no_rope_layers", "full"] = "none"
    """which layers have no rotary positions: those of the config's list, or those without a window"""
    vectors_per_head_dim: int = 0
    """further learned vectors of head_dim elements"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedForwardPlan:
    """The dense feed-forward layer."""

    width: str = "intermediate_size"
    """key of the width"""
    gated: bool = True
    gate: str = "gate_proj"
    up: str = "up_proj"
    down: str = "down_proj"
    gate_up: str = ""
    """one projection to both in place of gate and up"""
    bias: Flag = False
    inner_norm: bool = False
    learned_activations: Mapping[str, int] = field(default_factory=dict)
    """activation functions that learn: how many numbers"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertsPlan:
    """A mixture-of-experts layer. The experts are two stacked parameters, as transformers 5 has them."""

    count: str = "num_experts"
    per_token: str = "num_experts_per_tok"
    width: str = "moe_intermediate_size"
    bias: bool = False
    clamped: bool = False
    """gate and up are clamped before they meet: glu = gate · sigmoid(a · gate), inner = (up + 1) · glu"""
    router: str = "gate"
    router_bias: bool = False
    router_module: bool = False
    """the router is an ``nn.Linear``; most are a parameter of a class of their own, which adapters do not see"""
    correction: bool = False
    """a learned correction per expert counts as a parameter"""
    shared_width: str = ""
    """key of the width of the experts that every token passes"""
    shared_count: str = ""
    """key of how many of them there are, each as wide as a routed one"""
    shared_router: str = ""
    """name of the projection that weighs the shared expert"""
    sparse: Literal["all", "qwen", "first_dense", "ernie", "llama4"] = "all"
    """which layers have experts where the config has no ``mlp_layer_types`` (see :mod:`fullstep.models.layers`)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """One model type of transformers' ``AutoModelForCausalLM``."""

    model_type: str
    block_class: str
    defaults: Mapping[str, Any]
    """what the config's class takes for keys that a config leaves out"""
    keys: Mapping[str, str] = field(default_factory=dict)
    """names that differ from the usual ones: usual name -> the config's own; both are read"""
    derive: Derive | None = None
    attention: AttentionPlan = field(default_factory=AttentionPlan)
    feed_forward: FeedForwardPlan = field(default_factory=FeedForwardPlan)
    experts: ExpertsPlan | None = None
    norms: tuple[tuple[NormPlace, Flag], ...] = PRE_NORM
    norm_kind: NormKind = "rms"
    supports_sdpa: bool = True
    norm_scale: Flag = True
    norm_shift: Flag = False
    final_norm: Flag = True
    parallel_residual: Flag = False
    head_bias: Flag = False
    embedding: str = "embed_tokens"
    embedding_norm: bool = False
    embedding_width: str = ""
    """key of the embedding's own width; where it differs from the hidden size there are projections on both sides"""
    learned_positions: bool = False
    extra_positions: int = 0
    """rows of the table of positions that no token uses"""

    def variant(self, model_type: str, block_class: str, *, defaults: Mapping[str, Any] | None = None, **changes: Any) -> Architecture:
        """This architecture under another name, with other defaults and plans."""
        merged = {**self.defaults, **(defaults or {})}
        return replace(self, model_type=model_type, block_class=block_class, defaults=merged, **changes)
