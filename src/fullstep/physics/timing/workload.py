"""What one GPU of a job computes per micro-batch: rows, blocks of its pipeline stage, degrees, what is computed again."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, NamedTuple

from fullstep.job import Job, Method
from fullstep.models import Block, ModelShape
from fullstep.physics.memory.choices import block_kernels
from fullstep.physics.memory.framework import is_reentrant
from fullstep.physics.memory.kernels import Kernels
from fullstep.physics.memory.rank import stage_layers

Recomputes = Literal["nothing", "all", "all_but_last", "every_second", "attention", "elementwise"]
"""what of a checkpointed block is computed again in backward:

- ``all``: the whole forward pass (torch's reentrant checkpointing, Megatron, DeepSpeed);
- ``all_but_last``: torch's other kind stops as soon as everything kept is there again, which is before the block's last product;
- ``every_second``: torchtitan's selective kind keeps attention and every second product;
- ``attention``: Megatron's selective kind computes attention again and keeps the products;
- ``elementwise``: all products and attention are kept.
"""


class Workload(NamedTuple):
    """One micro-batch on one GPU; hashable, so that equal blocks are counted once."""

    kernels: Kernels
    method: Method
    tensor: int
    context: int
    expert: int
    recomputes: Recomputes
    input_needs_gradient: bool
    """gradient flows into the stream that enters the first block"""
    fp8: bool
    """products of the blocks multiply 8-bit copies"""
    fused: bool
    """norms and rotation are one kernel each: compiled, in Triton, or Transformer Engine's"""
    fused_activation: bool
    """so is the feed-forward's activation with its gate"""
    fused_adapters: bool
    """adapters run inside the kernels of their layer (Unsloth; foak for quantized layers)"""
    cudnn: bool
    """attention runs in Transformer Engine, which takes cuDNN's kernels"""
    grouped_experts: bool
    """all experts in one grouped product, not one after another"""
    emulates: bool
    """the card has no units for bfloat16: products run in float32"""
    unpacks_step_by_step: bool
    """weights of few bits are unpacked by torch's own operations (AutoGPTQ while it trains), not by one kernel"""

    @property
    def size(self) -> int:
        """Bytes per element between the products."""
        return self.kernels.compute

    @property
    def tokens(self) -> float:
        """Of one micro-batch on this GPU: context parallelism cuts the rows."""
        return self.kernels.tokens / self.context


def workload_of(job: Job, block: Block) -> Workload:
    """The part of one GPU in a block's work."""
    layout, framework = job.layout, job.step.framework
    kernels = block_kernels(job, block)
    checkpoints = job.step.activation_checkpointing != "none"
    return Workload(
        kernels=kernels,
        method=job.method,
        tensor=layout.tensor,
        context=layout.context,
        expert=layout.expert,
        recomputes=recomputes(job),
        input_needs_gradient=job.method.kind == "full" or checkpoints or job.shape.embedding_name in job.method.train_modules,
        fp8=job.precision.compute == "fp8",
        fused=kernels.compile or kernels.fused or framework == "megatron",
        fused_activation=kernels.compile or framework in ("megatron", "unsloth"),
        fused_adapters=kernels.compile or framework == "unsloth" or (kernels.fused and kernels.quantized),
        cudnn=framework == "megatron",
        grouped_experts=kernels.stacks_experts or kernels.fused or framework in ("megatron", "torchtitan"),
        emulates=job.precision.compute == "bfloat16" and job.machine.card is not None and not job.machine.card.trains_bf16,
        unpacks_step_by_step=job.method.quantization == "gptq" and framework not in ("fms_acceleration", "unsloth"),
    )


def recomputes(job: Job) -> Recomputes:
    """What a checkpointed block computes again.

    Source:
        torch.utils.checkpoint (early stop of use_reentrant=False); torchtitan, _apply_ac_to_transformer_block; Korthikanti et al. 2022,
        Reducing Activation Recomputation, section 5 (selective: attention alone)
    """
    kind, framework = job.step.activation_checkpointing, job.step.framework
    if kind == "none":
        return "nothing"
    if kind == "selective":
        return {"torchtitan": "every_second", "megatron": "attention"}.get(framework, "elementwise")  # type: ignore[return-value]
    return "all" if is_reentrant(job) or framework in ("megatron", "deepspeed") else "all_but_last"


class StageBlocks(NamedTuple):
    """Blocks of one kind on the slowest pipeline stage."""

    kind: int
    """their place in the model's ``blocks``"""
    blocks: float
    """how many of this kind"""
    checkpointed: float
    """of them, how many are checkpointed"""


def stage_blocks(job: Job) -> tuple[StageBlocks, ...]:
    """Blocks that the longest pipeline stage has, kind by kind. Kinds are spread evenly over the stages."""
    return _stage_blocks(job.shape, max(stage_layers(job)), job.step.activation_checkpointing)


@lru_cache(maxsize=256)
def _stage_blocks(shape: ModelShape, on_stage: int, checkpointing: Literal["none", "full", "selective"] | int) -> tuple[StageBlocks, ...]:
    layers = len(shape.layers)
    found = []
    for index in dict.fromkeys(shape.layers):
        places = [place for place, kind in enumerate(shape.layers) if kind == index]
        if checkpointing == "none":
            kept = 0
        elif isinstance(checkpointing, int):
            kept = sum(1 for place in places if place % checkpointing == 0)
        else:
            kept = len(places)
        found.append(StageBlocks(index, len(places) * on_stage / layers, kept * on_stage / layers))
    return tuple(found)
