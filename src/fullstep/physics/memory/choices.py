"""From a job to the kernels that its blocks and its head run with."""

from __future__ import annotations

from fullstep.job import Job
from fullstep.job.habits import CASTS_IN_THE_LOSS, RUNS_TRANSFORMERS, SHIFTS_LABELS
from fullstep.models import Block
from fullstep.physics.memory.cut import ROWS, gathered_roles
from fullstep.physics.memory.framework import (
    asks_for_grouped_keys,
    attended_window,
    repeats_keys,
    stacks_experts,
    transformers_version,
    weights_rows_in_float32,
)
from fullstep.physics.memory.head import LossHabit
from fullstep.physics.memory.kernels import FLOAT32, AdapterKernels, AttentionKernel, Kernels
from fullstep.physics.memory.megatron import is_megatron, keeps_gradient_buffers
from fullstep.physics.memory.rank import context_exchange, is_sequence_parallel, tensor_plan
from fullstep.quantities import DTYPE_BYTES

FUSED_KERNELS = ("fms_acceleration", "unsloth")
"""frameworks whose kernels join a base's product with its adapter's"""
FLASH_HEAD_DIM = 256
"""largest head that torch's flash kernel takes"""


def compute_bytes(job: Job) -> int:
    """Bytes per activation element.

    The compute dtype under autocast, in FSDP's mixed precision and with master weights; else the weights' own. fp8 keeps bfloat16.

    Example: float32 weights under bfloat16 autocast 2; the same without autocast 4.
    """
    precision = job.precision
    if is_upcast(job) and not precision.autocast:
        return FLOAT32  # 4-bit layers give back their input's dtype, and everything around them is float32
    lowers = precision.autocast or precision.master_weights or job.layout.divides_parameters
    name = precision.compute if lowers or job.method.is_quantized else precision.weights
    return 2 if name == "fp8" else DTYPE_BYTES[name]


def is_upcast(job: Job) -> bool:
    """What is not packed around 4-bit layers computes in float32. FSDP stores it so, and gathers it in the compute dtype.

    Source:
        peft, prepare_model_for_kbit_training; torch.distributed.fsdp, MixedPrecisionPolicy(param_dtype)
    """
    return job.method.is_quantized and job.method.upcast_unquantized and not job.layout.is_fsdp


def residual_bytes(job: Job) -> int:
    """Bytes per element of the stream between blocks: the embedding's output dtype.

    float32 where the embedding is float32 in forward: under autocast with float32 weights that nobody gathers in a lower
    dtype, and where a quantized base was prepared with everything else upcast. Where ia3 scales what a packed layer adds to the stream,
    the dtype of the adapters from the first block on, without autocast float32; FSDP2 casts the inputs of its units back.

    Source:
        torch.autocast: embedding and addition are on none of its lists; peft's prepare_model_for_kbit_training, tuners/ia3/bnb.py
    """
    precision = job.precision
    if is_upcast(job):
        return FLOAT32
    if job.method.kind == "ia3" and job.method.is_quantized and not job.layout.is_fsdp and _adapts_the_stream(job):
        return max(compute_bytes(job), DTYPE_BYTES[precision.adapters] if precision.autocast else FLOAT32)
    if precision.autocast and not job.layout.divides_parameters:
        return max(DTYPE_BYTES[precision.weights], compute_bytes(job))
    return compute_bytes(job)


def _adapts_the_stream(job: Job) -> bool:
    """An adapter on a layer whose output is added to the stream."""
    linears = (linear for block in job.shape.blocks for linear in block.linears)
    return any(linear.role in ROWS and linear.adapter_target in job.method.targets for linear in linears)


def is_masked(job: Job, block: Block) -> bool:
    """A mask reaches the kernel: padded rows, a window shorter than the row, or virtual tokens before the keys."""
    window = attended_window(job, block)
    return not job.batch.packed or job.method.kind == "prefix_tuning" or (window is not None and job.batch.sequence_tokens > window)


def attention_kernel(job: Job, block: Block, compute: int) -> AttentionKernel:
    """The kernel that CUDA takes under sdpa: flash for 16-bit heads up to 256 without a mask; a mask or float32 makes it the efficient one.

    That one takes no grouped keys: without a mask transformers (from 4.53) asks for them, and float32 falls back to math, which makes whole
    score matrices. So does one head of keys where the class does not say that they are grouped. Classes without an sdpa path, and ALiBi,
    run eager unless flash was asked for.
    """
    shape = block.attention
    if job.step.attention == "eager":
        return "eager"
    if job.step.attention == "flash":
        return "flash"
    if shape.alibi or not shape.supports_sdpa:
        return "eager"
    if shape.broadcasts_keys:
        return "math"
    grouped = shape.key_value_heads < shape.heads
    if compute == FLOAT32 and grouped and not is_masked(job, block) and asks_for_grouped_keys(job):
        return "math"
    if compute == FLOAT32 or is_masked(job, block) or shape.head_dim > FLASH_HEAD_DIM or shape.value_head_dim != shape.head_dim:
        return "efficient"
    return "flash"


def block_kernels(job: Job, block: Block) -> Kernels:
    """Kernels of one kind of block."""
    precision, method, step = job.precision, job.method, job.step
    compute = compute_bytes(job)
    new, work = gradient_sizes(job)
    kernel = attention_kernel(job, block, compute)
    return Kernels(
        rows=job.batch.micro_batch,
        sequence_tokens=job.batch.sequence_tokens,
        compute=compute,
        residual=residual_bytes(job),
        autocast=precision.autocast,
        stored=_stored_bytes(job, compute),
        trains_weights=method.kind == "full",
        new_gradient=new,
        gradient_work=work,
        adapter=adapter_kernels(job),
        quantized=method.is_quantized,
        quantized_keeps_input=step.framework == "litgpt",
        attention=kernel,
        masked=kernel == "efficient" and is_masked(job, block),
        window=attended_window(job, block),
        extra_keys=method.rank if method.kind == "prefix_tuning" else 0,
        repeats_keys=repeats_keys(job, kernel),
        fused=step.framework in FUSED_KERNELS,
        compile=step.compile or step.framework == "megatron",
        joins_heads=step.framework == "litgpt" and method.kind in ("full", "lora", "qlora"),
        stacks_experts=stacks_experts(job),
        weights_rows_in_float32=weights_rows_in_float32(job),
        tensor=job.layout.tensor,
        gathered_roles=gathered_roles(block, tensor_plan(job)) if job.layout.tensor > 1 else frozenset(),
        sequence_parallel=is_sequence_parallel(job),
        gathers_again=is_megatron(job),
        context=job.layout.context,
        exchange=context_exchange(job),
        deals_experts=job.layout.expert > 1,
    )


def _stored_bytes(job: Job, compute: int) -> int:
    """Bytes per element of the weights as a block reads them: what FSDP gathered, or what was upcast around 4-bit layers."""
    if is_upcast(job):
        return FLOAT32
    stored = DTYPE_BYTES[job.precision.weights]
    return min(stored, compute) if job.layout.is_fsdp else stored


def gradient_sizes(job: Job) -> tuple[int, int]:
    """Bytes per element of a trained weight: (left behind, besides while it is made).

    A gradient is made in the product's dtype. Where weights are float32 under autocast it is then copied to float32.

    Example: float32 weights under bfloat16 autocast: (4, 2).

    Megatron's products add to its permanent buffers themselves: (0, 0).

    Source:
        torch/csrc/autograd/functions/accumulate_grad.h; Megatron-LM, core/tensor_parallel/layers.py (gradient_accumulation_fusion)
    """
    precision, compute = job.precision, compute_bytes(job)
    if keeps_gradient_buffers(job):
        return 0, 0
    if job.layout.divides_parameters or job.layout.strategy == "zero2":
        return compute, 0  # the unit's gradients until they are reduced
    kept = DTYPE_BYTES[precision.gradients]
    copies = 0 if kept == compute else compute
    if job.optimizer.in_backward:
        return 0, kept + copies
    return kept, copies


def adapter_kernels(job: Job) -> AdapterKernels | None:
    """What adapters do to a block's operations; None for full fine-tuning."""
    method, precision = job.method, job.precision
    if method.kind == "full":
        return None
    width = DTYPE_BYTES[precision.adapters]
    quantized = method.is_quantized
    gathered = job.layout.is_fsdp and job.layout.implementation == "fsdp2" and job.layout.shards > 1
    return AdapterKernels(
        kind=method.kind,
        rank=method.rank,
        targets=frozenset(method.targets),
        dropout=method.dropout > 0,
        element_bytes=min(width, compute_bytes(job)) if gathered else width,
        new_gradient=width,
        casts_input=not (quantized and precision.autocast),
    )


def loss_habit(job: Job) -> LossHabit:
    """How this framework and version computes the loss.

    transformers before 4.50 copies the logits without the last position; from 4.46 the model's logits live on beside the float32 ones.

    Source:
        transformers, loss/loss_utils.py and the models' forward, 4.45 to 5.23
    """
    step, method, version = job.step, job.method, transformers_version(job)
    hugging_face = step.framework in RUNS_TRANSFORMERS
    trains = method.kind == "full" or job.shape.head_name in method.train_modules
    return LossHabit(
        kernel=step.loss,
        input_bytes=DTYPE_BYTES[step.loss_input_dtype],
        copies_shifted=(hugging_face and version < SHIFTS_LABELS) or step.loss == "inplace",
        holds_logits=hugging_face and version >= CASTS_IN_THE_LOSS,
        trains_head=trains,
        compiled=step.compile,
        gathered_from=job.layout.tensor if tensor_plan(job) == "transformers" else 1,
    )
