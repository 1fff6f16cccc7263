"""The matrix products of a step, each with its sides: the blocks' own, their adapters', and the output matrix."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, NamedTuple

from fullstep.job import Job
from fullstep.models import Block, Linear
from fullstep.physics.memory.weights import ADAPTER_KINDS_ON_LINEARS
from fullstep.physics.timing.workload import Workload

Component = Literal[
    "attention_projections", "attention", "feed_forward", "experts", "shared_experts", "router", "adapters", "output_matrix"
]
_EXPERT_ROLES = ("shared_gate", "shared_up", "shared_down")
_FEED_FORWARD_ROLES = ("gate", "up", "gate_up", "down")
_CUT_BY_INPUTS = ("attention_output", "down", "shared_down")
_READ_STREAM = ("query", "key", "value", "query_key_value", "query_down", "key_value_down")


class Product(NamedTuple):
    """``copies`` equal products ``rows x inputs`` times ``inputs x outputs`` on one GPU."""

    component: Component
    rows: float
    inputs: float
    outputs: float
    copies: float = 1.0
    trains: bool = True
    """backward makes the gradient of the weight"""
    passes_gradient: bool = True
    """backward makes the gradient of the input"""
    recomputed: bool = False
    """a checkpointed block makes it again"""
    dequantized: bool = False
    """its weight is made whole from few bits before each use"""

    @property
    def forward_flop(self) -> float:
        """``2 * rows * inputs * outputs`` of each [FLOP]."""
        return 2 * self.rows * self.inputs * self.outputs * self.copies

    @property
    def backward_flop(self) -> float:
        """As much again for the gradient of the input, and for that of the weight [FLOP]."""
        return self.forward_flop * (self.trains + self.passes_gradient)


def component_of(linear: Linear) -> Component:
    """What a linear layer belongs to.

    >>> component_of(Linear(name="q_proj", role="query", inputs=8, outputs=8))
    'attention_projections'
    """
    if linear.role in ("router", "shared_router"):
        return "router"
    if linear.role in _EXPERT_ROLES:
        return "shared_experts"
    if linear.role in _FEED_FORWARD_ROLES:
        return "experts" if linear.copies > 1 else "feed_forward"
    return "attention_projections"


@lru_cache(maxsize=2048)
def block_products(block: Block, work: Workload, hidden: int, *, first: bool) -> tuple[Product, ...]:
    """All products of one block for one micro-batch, adapters included.

    Tensor parallelism cuts outputs, or inputs of the products that end a sublayer. Of experts each token passes
    ``experts_per_token``; expert parallelism leaves ``experts / expert`` of them on a GPU, with the rows of all its peers.

    Args:
        block: its layers
        work: rows, degrees, method, what is computed again
        hidden: width of the stream [elements]
        first: the model's first block: where nothing below it trains, the products that read the stream pass no gradient on

    Returns:
        products with what backward makes of each
    """
    made: list[Product] = []
    blind = first and not work.input_needs_gradient
    for place, linear in enumerate(block.linears):
        trains = work.method.kind == "full" or linear.name in work.method.train_modules
        rows, count = _rows(block, linear, work)
        inputs, outputs = _cut(linear, work.tensor)
        passes = not (blind and (linear.role in _READ_STREAM or (block.parallel_residual and linear.role in ("gate", "up", "gate_up"))))
        recomputed = _recomputed(block, work, place, linear)
        made.append(
            Product(
                component_of(linear), rows, inputs, outputs, count, trains, passes, recomputed,
                work.kernels.quantized and not (linear.stacked and work.kernels.stacks_experts),
            )
        )  # fmt: skip
        made += _adapter(linear, work, rows, count, passes=passes, last=_is_last(block, linear))
    made += _bottleneck(work, hidden)
    return tuple(made)


def output_matrix(job: Job) -> Product:
    """From the stream to the logits; frozen beside adapters unless it trains itself."""
    shape, layout = job.shape, job.layout
    trains = job.method.kind == "full" or shape.head_name in job.method.train_modules
    tokens = job.batch.tokens / layout.context
    return Product("output_matrix", tokens, shape.hidden, shape.vocabulary / layout.tensor, trains=trains)


def _rows(block: Block, linear: Linear, work: Workload) -> tuple[float, float]:
    """Rows of one product and how many equal products there are on this GPU."""
    if linear.copies == 1:
        return work.tokens, 1.0
    routed = work.tokens * max(1, block.feed_forward.experts_per_token)
    here = linear.copies / work.expert
    return routed / here, here


def _cut(linear: Linear, tensor: int) -> tuple[float, float]:
    if tensor == 1 or linear.role in ("router", "shared_router", "query_down", "key_value_down"):
        return float(linear.inputs), float(linear.outputs)
    if linear.role in _CUT_BY_INPUTS:
        return linear.inputs / tensor, float(linear.outputs)
    return float(linear.inputs), linear.outputs / tensor


def _recomputed(block: Block, work: Workload, place: int, linear: Linear) -> bool:
    if work.recomputes == "every_second":
        return place % 2 == 1
    if work.recomputes == "all_but_last":
        adapts = linear.adapter_target in work.method.targets and work.method.kind in ADAPTER_KINDS_ON_LINEARS
        return adapts or not _is_last(block, linear)
    return work.recomputes == "all"


def _is_last(block: Block, linear: Linear) -> bool:
    """Nothing after this product is kept for backward: no norm, no dropout, no weighting of experts."""
    ends = block.dropouts or any(norm.place == "feed_forward_output" for norm in block.norms)
    return linear.role == "down" and linear.copies == 1 and not ends


def _adapter(linear: Linear, work: Workload, rows: float, count: float, *, passes: bool, last: bool) -> list[Product]:
    """``B(A(x))``: two narrow products; those of stacked experts are one product of the parameter's own sides (peft's ParamWrapper)."""
    method = work.method
    recomputed = work.recomputes in ("all", "all_but_last", "every_second")
    if method.kind not in ADAPTER_KINDS_ON_LINEARS or linear.adapter_target not in method.targets:
        return []
    rank = method.rank
    if linear.stacked and work.kernels.stacks_experts:
        rank *= 2 if linear.is_joined_experts else 1
        return [Product("adapters", linear.outputs, rank, linear.inputs, linear.copies / work.expert, recomputed=recomputed)]
    inputs, outputs = _cut(linear, work.tensor)
    low = Product("adapters", rows, inputs, rank, count, passes_gradient=passes, recomputed=recomputed)
    stops = last and work.recomputes == "all_but_last"
    return [low, Product("adapters", rows, rank, outputs, count, recomputed=recomputed and not stops)]


def _bottleneck(work: Workload, hidden: int) -> list[Product]:
    if work.method.kind != "bottleneck":
        return []
    again = work.recomputes in ("all", "all_but_last")
    return [
        Product("adapters", work.tokens, hidden, work.method.rank, 2.0, recomputed=again),
        Product("adapters", work.tokens, work.method.rank, hidden, 2.0, recomputed=again),
    ]
