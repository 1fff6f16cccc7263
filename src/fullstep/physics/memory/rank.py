"""A job as one rank sees it: its part of the model, its part of each row, the ranks among which its state is divided."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from fullstep.job import Job, Settings
from fullstep.job.habits import HUGGING_FACE
from fullstep.job.job import Strategy
from fullstep.physics.memory.cut import TensorPlan, cut_shape, stage_shape
from fullstep.physics.memory.kernels import ContextExchange
from fullstep.physics.memory.megatron import is_megatron
from fullstep.physics.memory.pipeline import layers_per_stage, micro_batches_in_flight
from fullstep.quantities import DTYPE_BYTES


class Rank(NamedTuple):
    """One kind of rank."""

    job: Job
    """with its part of the model and of the row; degrees still say among how many ranks things were divided"""
    first_layer: int
    """of the model, in this stage"""
    in_flight: int
    """micro-batches whose activations it holds at once"""


def is_divided(job: Settings) -> bool:
    """A degree besides data-parallelism is above one."""
    layout = job.layout
    return layout.tensor * layout.pipeline * layout.context * layout.expert > 1


def ranks_of(job: Job) -> Iterator[Rank]:
    """Every kind of rank that may need the most memory: of a pipeline the first two stages and the last.

    Under 1F1B the first stage holds the embedding and the most micro-batches, the second the most among those without it (and, as some
    frameworks split, a layer more), the last the head and the logits.

    Args:
        job: as the worksheet has it

    Returns:
        one; up to three of a pipeline
    """
    if not is_divided(job):
        yield Rank(job, 0, 1)
        return
    layout, batch = job.layout, job.batch
    shape = cut_shape(job.shape, layout.tensor, layout.expert, tensor_plan(job))
    part = replace(batch, sequence_tokens=-(-batch.sequence_tokens // layout.context)) if layout.context > 1 else batch
    own = _with_state_divided(replace(job, shape=shape, batch=part))
    stages = layout.pipeline
    if stages == 1:
        yield Rank(own, 0, 1)
        return
    layers = stage_layers(job)
    for stage in sorted({0, 1, stages - 1}):
        staged = replace(own, shape=stage_shape(shape, layers, stage))
        yield Rank(staged, sum(layers[:stage]), micro_batches_in_flight(stages, stage, batch.accumulation))


def stage_layers(job: Job) -> tuple[int, ...]:
    """Layers of each pipeline stage, as the framework splits them."""
    layers, stages = len(job.shape.layers), job.layout.pipeline
    return layers_per_stage(layers, stages, layers % stages > 0 or job.step.framework == "torchtitan")


def _with_state_divided(job: Job) -> Job:
    """State is divided by shards * context. FSDP over one rank divides nothing and is not there; autocast then casts what it would."""
    layout, precision = job.layout, job.precision
    if layout.strategy in ("single", "ddp", "layer_split"):
        return job
    shards = layout.shards * layout.context
    if not layout.is_fsdp or shards > 1 or layout.offload_parameters:
        return replace(job, layout=replace(layout, shards=shards))
    casts = DTYPE_BYTES[precision.weights] > (2 if precision.compute == "fp8" else DTYPE_BYTES[precision.compute])
    alone: Strategy = "single" if layout.data_parallel == 1 else "ddp"
    return replace(
        job,
        layout=replace(layout, strategy=alone, implementation="torch", shards=1),
        precision=replace(precision, autocast=precision.autocast or casts),
    )


def tensor_plan(job: Settings) -> TensorPlan:
    """Whose plan cuts the model: that of the classes of transformers, or that of Megatron, which torchtitan's is like."""
    return "transformers" if job.step.framework in HUGGING_FACE and job.layout.implementation != "megatron" else "megatron"


def is_sequence_parallel(job: Settings) -> bool:
    """Norms and the stream between blocks are divided along the row among the tensor ranks: Megatron (recommended with every tensor
    degree, demanded with experts) and torchtitan (always). The plans of transformers keep them whole.

    Source:
        Korthikanti et al. 2022, section 4.2; torchtitan, models/llama3/infra/parallelize.py apply_tp; transformers 5.23,
        base_model_tp_plan
    """
    return job.layout.tensor > 1 and (is_megatron(job) or job.step.framework == "torchtitan")


def context_exchange(job: Settings) -> ContextExchange:
    """How attention reaches the other parts of the row: DeepSpeed exchanges heads (Ulysses), torch gathers keys and values,
    Megatron passes them round the ring.

    Source:
        Jacobs et al. 2023, DeepSpeed Ulysses; Liu et al. 2023, Ring Attention; torchtitan, context_parallel_rotate_method = "allgather";
        Megatron-LM, cp_comm_type = "p2p"
    """
    if job.layout.implementation == "deepspeed" or job.step.framework == "deepspeed":
        return "heads"
    return "ring" if is_megatron(job) else "gather"
