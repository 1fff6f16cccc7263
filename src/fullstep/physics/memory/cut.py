"""A model's shape as one rank has it: matrices cut over tensor ranks, experts dealt out, layers divided into pipeline stages.

What a rank holds is a decoder of its own, only narrower or shorter, so every other formula of this package reads it like any other.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import lru_cache
from math import ceil
from typing import Literal

from fullstep.models import Block, Linear, ModelShape, Norm

COLUMNS = frozenset(
    ("query", "key", "value", "query_key_value", "query_up", "key_value_up", "gate", "up", "gate_up", "shared_gate", "shared_up")
)
"""roles whose outputs are divided among tensor ranks"""
ROWS = frozenset(("attention_output", "down", "shared_down"))
"""roles whose inputs are divided; all others are whole on every rank"""
_ATTENTION = frozenset(("query", "key", "value", "query_key_value", "query_up", "key_value_up", "attention_output"))

_EXPERTS = frozenset(("gate", "up", "gate_up", "down"))

TensorPlan = Literal["megatron", "transformers"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoneExpert(Linear):
    """The one expert of a rank: still an expert to adapters, though its number no longer tells."""

    @property
    def adapter_target(self) -> str:
        return f"experts.{self.name}" if self.stacked else self.name

    @property
    def is_joined_experts(self) -> bool:
        return self.role == "gate_up"


@lru_cache(maxsize=512)
def cut_linear(linear: Linear, tensor: int, expert: int = 1) -> Linear:
    """One rank's part of a matrix: ``outputs / tensor`` of a column-cut one, ``inputs / tensor`` of a row-cut one, ``copies / expert``.

    Example: a down projection of 14,336 inputs and 4,096 outputs over 4 ranks has ``3,584 * 4,096`` elements on each.

    Args:
        linear: whole
        tensor: ranks among which matrices are cut
        expert: ranks among which experts are dealt out

    Returns:
        the part of the first rank, which has the most where something does not divide

    Source:
        Shoeybi et al. 2019, Megatron-LM, section 3; base_model_tp_plan of the configurations of transformers 5.23

    Valid:
        exact; the bias of a row-cut matrix is whole on every rank

    >>> whole = Linear(name="down_proj", role="down", inputs=14336, outputs=4096)
    >>> cut_linear(whole, 4).inputs, cut_linear(whole, 4).outputs
    (3584, 4096)
    """
    copies = ceil(linear.copies / expert) if linear.copies > 1 else 1
    if copies < linear.copies and copies == 1:
        linear = LoneExpert(**{each.name: getattr(linear, each.name) for each in fields(linear)})
    if linear.role in COLUMNS:
        return replace(linear, outputs=ceil(linear.outputs / tensor), copies=copies)
    if linear.role in ROWS:
        return replace(linear, inputs=ceil(linear.inputs / tensor), copies=copies)
    return replace(linear, copies=copies) if copies != linear.copies else linear


@lru_cache(maxsize=1024)
def gathered_roles(block: Block, plan: TensorPlan) -> frozenset[str]:
    """Column-cut matrices whose outputs are put together again on every rank, and the row-cut ones that then take their part of the whole.

    The classes of transformers do so where what follows needs all of it: norms over all heads of queries and keys together (olmo2), one
    matrix for queries, keys and values or for gate and up (phi3).

    Source:
        base_model_tp_plan of transformers 5.23: colwise_gather_output with rowwise_split_input
    """
    if plan == "megatron":
        return frozenset()
    found: set[str] = set()
    spans_heads = any(norm.place == "query" and norm.width > block.attention.head_dim for norm in block.norms)
    roles = {linear.role for linear in block.linears if linear.copies == 1}
    if spans_heads or "query_key_value" in roles:
        found |= {"query", "key", "value", "query_key_value", "attention_output"}
    if "gate_up" in roles:
        found |= {"gate_up", "down"}
    return frozenset(found)


def _cut_norm(norm: Norm, block: Block, tensor: int) -> Norm:
    """Norms over the stream are whole; one over all heads of queries or keys together has its rank's heads."""
    attention = block.attention
    if norm.place not in ("query", "key") or norm.width <= attention.head_dim:
        return norm
    return replace(norm, width=norm.width // tensor, parameters=norm.parameters // tensor)


@lru_cache(maxsize=1024)
def cut_block(block: Block, tensor: int, expert: int, plan: TensorPlan) -> Block:
    """One rank's part of a block; the classes of transformers leave latent attention whole."""
    latent = plan == "transformers" and block.attention.kind == "latent"
    own = 1 if latent else tensor
    heads = 1 if "attention_output" in gathered_roles(block, plan) else own
    attention, feed_forward = block.attention, block.feed_forward
    return replace(
        block,
        attention=replace(attention, heads=attention.heads // heads, key_value_heads=max(1, attention.key_value_heads // heads)),
        feed_forward=replace(
            feed_forward,
            intermediate=ceil(feed_forward.intermediate / tensor),
            shared_intermediate=ceil(feed_forward.shared_intermediate / tensor),
            experts=ceil(feed_forward.experts / expert),
        ),
        linears=tuple(cut_linear(linear, own if linear.role in _ATTENTION else tensor, expert) for linear in block.linears),
        norms=tuple(_cut_norm(norm, block, heads) for norm in block.norms),
    )


@lru_cache(maxsize=256)
def cut_shape(shape: ModelShape, tensor: int, expert: int, plan: TensorPlan) -> ModelShape:
    """One rank's part of a model: blocks as in ``cut_block``; of embedding and output matrix ``vocabulary / tensor`` rows.

    Example: Llama-3.1-8B over 2: all but norms is halved, ``(8,030,261,248 - 266,240) / 2 + 266,240`` = 4,015,263,744 parameters.

    Args:
        shape: whole
        tensor: ranks among which matrices are cut
        expert: ranks among which experts are dealt out
        plan: whose: "transformers" leaves latent attention whole

    Returns:
        the part of the first rank [elements]

    Source:
        Shoeybi et al. 2019, section 3; transformers 5.23, distributed/mixin.py (embedding_rowwise) and _tp_plan (colwise_gather_output)

    Valid:
        exact against traces of llama, qwen2 and mixtral; Megatron pads the vocabulary to a multiple of 128 * tensor, which is not counted
    """
    if tensor == expert == 1:
        return shape
    words = ceil(shape.vocabulary / tensor)
    bias = words if shape.head_bias else 0
    head = shape.head_parameters - (shape.vocabulary if shape.head_bias else 0)
    return replace(
        shape,
        vocabulary=words,
        blocks=tuple(cut_block(block, tensor, expert, plan) for block in shape.blocks),
        embedding_parameters=words * (shape.embedding_parameters // max(1, shape.vocabulary)),
        head_parameters=words * (head // max(1, shape.vocabulary)) + bias,
    )


@lru_cache(maxsize=512)
def stage_shape(shape: ModelShape, layers: tuple[int, ...], stage: int) -> ModelShape:
    """One pipeline stage: its layers; the first has the embedding, the last the final norm and the head (a copy of a tied one).

    Args:
        shape: of one rank, with all layers
        layers: how many each stage has
        stage: which, from 0

    Returns:
        the part of that stage
    """
    first, last = stage == 0, stage == len(layers) - 1
    before = sum(layers[:stage])
    head = shape.head_parameters + (shape.embedding_parameters if shape.tied and not first else 0)
    return replace(
        shape,
        layers=shape.layers[before : before + layers[stage]],
        embedding_parameters=shape.embedding_parameters if first else 0,
        position_parameters=shape.position_parameters if first else 0,
        embedding_other_parameters=shape.embedding_other_parameters if first else 0,
        final_norm=shape.final_norm if last else None,
        final_other_parameters=shape.final_other_parameters if last else 0,
        head_parameters=head if last else 0,
        head_bias=shape.head_bias and last,
        tied=shape.tied and first and last,
    )


def experts_of(block: Block) -> tuple[Linear, ...]:
    """Matrices of the routed experts; a rank may have one expert alone, so that their number does not tell."""
    return tuple(linear for linear in block.linears if linear.role in _EXPERTS) if block.feed_forward.experts else ()


def expert_parameters(block: Block) -> int:
    """Parameters of a block's routed experts; shared ones and the router are on every rank."""
    return sum(linear.parameters for linear in experts_of(block))


def has_head(shape: ModelShape) -> bool:
    """Whether this part of a model makes logits."""
    return shape.tied or shape.head_parameters > 0
