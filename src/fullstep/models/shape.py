"""The shape of a decoder: every parameter of it, and what its blocks compute, without a single weight.

A shape is made from a Hugging Face config (:mod:`fullstep.models.config`). Names of modules are those of the model's own
class in transformers, because that is what adapters are aimed at.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from fullstep.evidence import Assumption

Role = Literal[
    "query", "key", "value", "query_key_value", "attention_output",
    "query_down", "query_up", "key_value_down", "key_value_up",
    "gate", "up", "gate_up", "down",
    "shared_gate", "shared_up", "shared_down", "shared_router",
    "router",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """One matrix product of a block (or ``copies`` equal ones: the experts). Weight elements: copies * inputs * outputs."""

    name: str
    """the module's own name in its parent, for example ``q_proj``"""
    role: Role
    inputs: int
    outputs: int
    bias: bool = False
    copies: int = 1
    stacked: bool = False
    """a bare parameter in transformers 5, not an ``nn.Linear``: experts that are one three-dimensional parameter, routers of a class
    of their own; 4-bit layers do not see it"""

    @property
    def adapter_target(self) -> str:
        """Its name among the targets of an adapter: parameters of stacked experts and routers have names that no module has."""
        if not self.stacked:
            return self.name
        return f"experts.{self.name}" if self.copies > 1 else f"{self.name}.weight"

    @property
    def is_joined_experts(self) -> bool:
        """Gate and up of experts, which are two modules where experts are modules."""
        return self.role == "gate_up" and self.copies > 1

    @property
    def weight_elements(self) -> int:
        return self.copies * self.inputs * self.outputs

    @property
    def parameters(self) -> int:
        return self.weight_elements + (self.copies * self.outputs if self.bias else 0)


NormPlace = Literal[
    "attention_input", "attention_output", "feed_forward_input", "feed_forward_output",
    "query", "key", "query_latent", "key_value_latent", "attention_inner", "feed_forward_inner",
]  # fmt: skip


NormKind = Literal["rms", "rms_float32", "layer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Norm:
    """A normalisation inside a block, over ``width`` elements (for ``query``/``key``: one head, or all heads together)."""

    place: NormPlace
    kind: NormKind
    """rms: step by step in float32 as transformers writes it, scaled in the input's dtype; rms_float32: scaled in float32 too
    (gemma, olmo2, gpt_oss, cohere); layer: torch's own fused layer norm kernel"""
    width: int
    parameters: int
    """width for a scale, 2 * width with a shift, 0 for one without weights"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Standard (multi-head, grouped) or latent (MLA) attention of one block."""

    kind: Literal["standard", "latent"]
    heads: int
    key_value_heads: int
    head_dim: int
    """width of a query or key head"""
    value_head_dim: int
    window: int | None = None
    """tokens that a sliding layer looks back on; None: all"""
    rotary_fraction: float = 1.0
    """share of a head that is rotated; 0: none (learned positions or ALiBi)"""
    alibi: bool = False
    logit_softcap: bool = False
    sinks: bool = False
    eager_softmax: Literal["float32", "scores", "plain"] = "float32"
    """dtype in which the eager code takes the softmax: float32 (most), that of the scores, or unsaid (float32 under autocast)"""
    supports_sdpa: bool = True
    """False: the class in transformers 5 has no sdpa path and runs eager unless flash is asked for"""
    broadcasts_keys: bool = False
    """its sdpa path hands torch one head of keys for all queries without saying that they are grouped: no fused kernel takes that"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedForward:
    """A dense feed-forward layer, or the shape that all experts share. ``intermediate`` is the width of one expert."""

    gated: bool
    intermediate: int
    activation: str
    """the config's name of it: silu, gelu, gelu_new, gelu_pytorch_tanh, relu, relu2 …"""
    experts: int = 0
    """0: dense"""
    experts_per_token: int = 0
    shared_intermediate: int = 0
    """width of the experts that every token passes; 0: none"""
    clamped: bool = False
    """gate and up are clamped before they meet, as gpt_oss does"""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Block:
    """One kind of decoder block. Two blocks are the same only if they are one object, which makes it a cheap cache key."""

    label: str
    """for people: ``dense``, ``expert``, ``sliding`` …"""
    attention: Attention
    feed_forward: FeedForward
    linears: tuple[Linear, ...]
    norms: tuple[Norm, ...]
    other_parameters: int = 0
    """what is neither: attention sinks, layer scales …"""
    parallel_residual: bool = False
    """attention and feed-forward read the same input (gpt_neox, gptj, falcon, phi, cohere)"""
    dropouts: bool = False
    """the config states a dropout above 0 inside the block: masks are kept for backward"""

    @property
    def linear_parameters(self) -> int:
        return sum(linear.parameters for linear in self.linears)

    @property
    def norm_parameters(self) -> int:
        return sum(norm.parameters for norm in self.norms)

    @property
    def parameters(self) -> int:
        return self.linear_parameters + self.norm_parameters + self.other_parameters


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelShape:
    """A whole decoder, compared by identity. ``layers`` says, block by block from the embedding on, which entry of ``blocks`` it is."""

    name: str
    """hub id, path, or what the user called it"""
    model_type: str
    hidden: int
    vocabulary: int
    blocks: tuple[Block, ...]
    layers: tuple[int, ...]
    embedding_parameters: int
    """token embedding alone: vocabulary rows * its width"""
    position_parameters: int = 0
    """learned positions"""
    embedding_other_parameters: int = 0
    """norms, projections and token types between embedding and the first block"""
    final_norm: Norm | None = None
    final_other_parameters: int = 0
    """projections between the last block and the head"""
    head_parameters: int = 0
    """of the output matrix (and its bias) where it is not the embedding itself; 0 for a tied one without bias"""
    head_bias: bool = False
    tied: bool = False
    """the head is the embedding's weight"""
    logit_softcap: bool = False
    maximum_positions: int | None = None
    embedding_name: str = "embed_tokens"
    head_name: str = "lm_head"
    default_adapter_targets: tuple[str, ...] = ()
    """peft's own default for this model type; empty where peft has none"""
    block_class: str = ""
    """name of the block's class, which FSDP wraps"""
    covers: str = ""
    """what of the model is covered when not all of it is, for example ``the language part of a vision-language model``"""
    sizes_left_out: tuple[Assumption, ...] = ()
    """sizes that the config does not state, as its class has them"""
    source: str = field(default="", compare=False)

    @cached_property
    def block_parameters(self) -> int:
        return sum(self.blocks[index].parameters for index in self.layers)

    @cached_property
    def parameters(self) -> int:
        """All parameters, as ``sum(p.numel() for p in model.parameters())`` counts them."""
        return sum(self.parameters_by_component.values())

    @cached_property
    def parameters_by_component(self) -> dict[str, int]:
        """Exact counts that add up to ``parameters``."""
        attention_roles = {
            "query", "key", "value", "query_key_value", "attention_output",
            "query_down", "query_up", "key_value_down", "key_value_up",
        }  # fmt: skip
        counts = dict.fromkeys(("embedding", "positions", "attention", "feed_forward", "experts", "router", "norms", "other", "head"), 0)
        counts["embedding"] = self.embedding_parameters
        counts["positions"] = self.position_parameters
        counts["head"] = self.head_parameters
        counts["other"] = self.embedding_other_parameters + self.final_other_parameters
        for index in self.layers:
            block = self.blocks[index]
            counts["norms"] += block.norm_parameters
            counts["other"] += block.other_parameters
            for linear in block.linears:
                if linear.role in attention_roles:
                    counts["attention"] += linear.parameters
                elif linear.role in ("router", "shared_router"):
                    counts["router"] += linear.parameters
                elif linear.copies > 1:
                    counts["experts"] += linear.parameters
                else:
                    counts["feed_forward"] += linear.parameters
        if self.final_norm is not None:
            counts["norms"] += self.final_norm.parameters
        return counts

    @cached_property
    def linear_names(self) -> tuple[str, ...]:
        """Names of the linear modules in the blocks, each once: what "all-linear" aims at (never the head, never stacked experts)."""
        return tuple(dict.fromkeys(linear.name for block in self.blocks for linear in block.linears if not linear.stacked))

    @cached_property
    def active_parameters(self) -> int:
        """Parameters that one token passes: of the experts only those it is routed to."""
        idle = 0
        for index in self.layers:
            block = self.blocks[index]
            for linear in block.linears:
                if linear.copies > 1:
                    idle += linear.parameters * (linear.copies - block.feed_forward.experts_per_token) // linear.copies
        return self.parameters - idle
