"""FLOP of one optimizer step on one GPU, by component and phase."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, NamedTuple

from fullstep.job import Job
from fullstep.models import Attention, Block
from fullstep.physics.timing.products import Component, Product, block_products, output_matrix
from fullstep.physics.timing.workload import StageBlocks, Workload, stage_blocks, workload_of

Phase = Literal["forward", "recomputation", "backward"]
RateClass = Literal["matrix", "attention"]


class FlopPart(NamedTuple):
    """FLOP of one component in one phase of the optimizer step, all micro-batches together."""

    component: Component
    phase: Phase
    flop: float
    rate_class: RateClass
    """matrix: products at the rate of large matrices; attention: the attention kernel's own rate"""


class StepFlops(NamedTuple):
    """FLOP of one optimizer step on one GPU, as its kernels carry them out."""

    parts: tuple[FlopPart, ...]

    @property
    def total(self) -> float:
        return sum(part.flop for part in self.parts)

    def of(self, *, rate_class: RateClass | None = None, phase: Phase | None = None, component: Component | None = None) -> float:
        """The sum over the parts that fit [FLOP]."""
        return sum(
            part.flop
            for part in self.parts
            if rate_class in (None, part.rate_class) and phase in (None, part.phase) and component in (None, part.component)
        )


class AttentionFlops(NamedTuple):
    """Of one block and micro-batch on one GPU [FLOP]."""

    forward: float
    backward: float


def attended_pairs(sequence_tokens: int, window: int | None = None) -> float:
    """Pairs of query and key in one row of causal attention: ``s (s + 1) / 2``, within a window ``w``: ``w s - w (w - 1) / 2``.

    Args:
        sequence_tokens: s
        window: tokens that a sliding layer looks back on, itself included; None: all

    Returns:
        pairs

    >>> attended_pairs(4), attended_pairs(4, 2)
    (10.0, 7.0)
    """
    if window is None or window >= sequence_tokens:
        return sequence_tokens * (sequence_tokens + 1) / 2
    return window * sequence_tokens - window * (window - 1) / 2


def attention_flops(attention: Attention, work: Workload) -> AttentionFlops:
    """Scores and the sum of values: ``2 * pairs * heads * (d + v)`` forward.

    Backward of a fused kernel makes the scores again: three products of width d, two of v: ``2 * pairs * heads * (3 d + 2 v)``, 2.5 times
    forward where d = v. Eager and math keep the shares: ``2 * pairs * heads * (2 d + 2 v)``.
    Flash skips what lies above the diagonal; a mask that is a tensor, eager and math compute it: pairs = s * s.

    Example: Llama-3.1-8B (32 heads of 128), 4096 tokens: ``2 * 8,390,656 * 32 * 256 = 137.5 GFLOP`` a block forward.

    Args:
        attention: heads and their widths
        work: rows, length, kernel, degrees

    Returns:
        [FLOP] on one GPU; context and tensor parallelism divide it

    Source:
        Dao et al. 2022 (FlashAttention), algorithm 4: backward; Dao 2023 (FlashAttention-2), section 4.1 counts the same
    """
    kernels = work.kernels
    length = kernels.sequence_tokens
    whole = kernels.attention != "flash"
    pairs = float(length * (length + kernels.extra_keys)) if whole else attended_pairs(length, kernels.window)
    scale = 2 * pairs * kernels.rows * attention.heads / (work.tensor * work.context)
    wide, values = attention.head_dim, attention.value_head_dim
    again = wide if kernels.attention in ("flash", "efficient") else 0
    return AttentionFlops(scale * (wide + values), scale * (2 * wide + 2 * values + again))


def step_flops(job: Job) -> StepFlops:
    """FLOP of one optimizer step on one GPU (the slowest pipeline stage) by component and phase.

    Forward ``2 * rows * inputs * outputs`` of every product; backward as much for the gradient of the input and for that of the weight:
    frozen weights have only the first, the first block's have neither where nothing below them trains. Checkpointed blocks run forward
    again.

    Args:
        job: complete

    Returns:
        parts whose sum is what the GPU computes; norms, activation functions and the softmax are not counted (below 1 %)

    Source:
        Narayanan et al. 2021, Efficient Large-Scale Language Model Training, appendix; Korthikanti et al. 2022, appendix A

    Valid:
        matrix products within 1 % of traces of the real classes, whose counter takes attention without its causal half
    """
    totals: dict[tuple[Component, Phase, RateClass], float] = {}
    steps = job.batch.accumulation
    for stage, first in stages_with_first(job):
        block = job.shape.blocks[stage.kind]
        work = workload_of(job, block)
        for component, phase, flop, rate_class in _block_flops(block, work, job.shape.hidden, first):
            times = stage.checkpointed if phase == "recomputation" else stage.blocks
            totals[component, phase, rate_class] = totals.get((component, phase, rate_class), 0.0) + flop * times * steps
    head = output_matrix(job)
    totals["output_matrix", "forward", "matrix"] = head.forward_flop * steps
    totals["output_matrix", "backward", "matrix"] = head.backward_flop * steps
    return StepFlops(tuple(FlopPart(*key[:2], flop, key[2]) for key, flop in totals.items() if flop))


def stages_with_first(job: Job) -> list[tuple[StageBlocks, bool]]:
    """The stage's blocks, with the model's first block by itself, which differs where nothing below it trains."""
    stages = stage_blocks(job)
    if job.method.kind == "full" or job.layout.pipeline > 1:
        return [(stage, False) for stage in stages]
    found: list[tuple[StageBlocks, bool]] = []
    for stage in stages:
        if stage.kind == job.shape.layers[0]:
            again = min(1.0, stage.checkpointed)
            found.append((StageBlocks(stage.kind, 1.0, again), True))
            stage = StageBlocks(stage.kind, stage.blocks - 1, stage.checkpointed - again)  # noqa: PLW2901
        found.append((stage, False))
    return found


@lru_cache(maxsize=2048)
def _block_flops(block: Block, work: Workload, hidden: int, first: bool) -> tuple[FlopPart, ...]:
    parts: list[FlopPart] = []
    for product in block_products(block, work, hidden, first=first):
        parts += _product_flops(product)
    found = attention_flops(block.attention, work)
    parts += [FlopPart("attention", "forward", found.forward, "attention"), FlopPart("attention", "backward", found.backward, "attention")]
    if work.recomputes in ("all", "all_but_last", "attention"):
        parts.append(FlopPart("attention", "recomputation", found.forward, "attention"))
    return tuple(parts)


def _product_flops(product: Product) -> list[FlopPart]:
    parts = [
        FlopPart(product.component, "forward", product.forward_flop, "matrix"),
        FlopPart(product.component, "backward", product.backward_flop, "matrix"),
    ]
    if product.recomputed:
        parts.append(FlopPart(product.component, "recomputation", product.forward_flop, "matrix"))
    return parts


def model_flops(job: Job) -> float:
    """FLOP of one optimizer step on one GPU for the model FLOP utilization: no recomputation, attention with its causal half.

    Every product counts 2 forward and what backward needs of it (frozen weights: the input's gradient alone), whatever kernel runs.
    Pipeline stages share the model evenly: it is the whole model's over all GPUs.

    Args:
        job: complete

    Returns:
        [FLOP] per GPU

    Source:
        Chowdhery et al. 2022 (PaLM), appendix B, with the causal half of attention
    """
    shape, layout = job.shape, job.layout
    total = output_matrix(job).forward_flop + output_matrix(job).backward_flop
    for index in dict.fromkeys(shape.layers):
        block, count = shape.blocks[index], shape.layers.count(index)
        work = workload_of(job, block)
        products = block_products(block, work, shape.hidden, first=False)
        pairs = attended_pairs(job.batch.sequence_tokens, block.attention.window)
        wide = block.attention.head_dim + block.attention.value_head_dim
        attention = 6 * pairs * job.batch.micro_batch * block.attention.heads * wide / (work.tensor * work.context)
        total += count * (attention + sum(product.forward_flop + product.backward_flop for product in products))
    return total * job.batch.accumulation / layout.pipeline
