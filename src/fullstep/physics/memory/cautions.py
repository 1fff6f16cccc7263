"""What the user should know about the memory of a step."""

from __future__ import annotations

from fullstep.job import Job
from fullstep.ledger import Caution, Instant
from fullstep.physics.memory.allocator import is_rough
from fullstep.physics.memory.choices import attention_kernel, compute_bytes
from fullstep.physics.memory.framework import stacks_experts


def memory_cautions(job: Job, peak: Instant) -> tuple[Caution, ...]:
    """Cautions with their codes (see ``job/cautions.py`` for the table)."""
    found = []
    if peak.holdings.logits_and_loss == max(peak.holdings) and job.step.loss != "fused":
        text = f"logits and loss are the largest part of the peak ({job.shape.vocabulary:,} words): a fused loss keeps none of it"
        found.append(Caution("F100", text))
    if not job.batch.packed and job.batch.mean_sample_tokens < job.batch.sequence_tokens:
        found.append(Caution("F101", "the longest row decides: run it first, or a run can end hours later"))
    found += _stacked_experts(job)
    found += _whole_scores(job)
    found += _degrees(job)
    return tuple(found)


def _stacked_experts(job: Job) -> list[Caution]:
    names = {linear.adapter_target for block in job.shape.blocks for linear in block.linears if linear.stacked and linear.copies > 1}
    if not names or job.method.kind == "full" or not stacks_experts(job):
        return []
    found = []
    if names & set(job.method.targets):
        text = "adapters on stacked experts: each block keeps a changed copy of all its experts until its backward"
        if job.method.dropout:
            text += "; peft refuses method.dropout there"
        found.append(Caution("F102", text))
    if job.method.is_quantized:
        dtype = "float32" if job.method.upcast_unquantized else job.precision.weights
        text = f"the experts are one parameter in transformers 5, which {job.method.quantization} layers do not replace: they stay {dtype}"
        found.append(Caution("F103", text))
    return found


def _whole_scores(job: Job) -> list[Caution]:
    """Attention that was not asked to be eager, but keeps rows x heads x length x length all the same."""
    compute = compute_bytes(job)
    if job.step.attention == "eager" or not any(attention_kernel(job, block, compute) in ("eager", "math") for block in job.shape.blocks):
        return []
    shape = job.shape.blocks[0].attention
    why = "this class has no sdpa path" if not shape.supports_sdpa else "grouped keys in float32 have no kernel"
    if shape.broadcasts_keys:
        why = "one head of keys that this class does not say to be grouped has no kernel"
    return [Caution("F104", f"attention keeps whole score matrices ({why}): flash attention, or 16-bit compute, does not")]


def _degrees(job: Job) -> list[Caution]:
    """What the formulas take for granted of ranks that are not data-parallel."""
    layout = job.layout
    found = []
    rough = [name for name in ("tensor", "pipeline", "context", "expert") if getattr(layout, name) > 1]
    if is_rough(job):
        text = f"layout.{', layout.'.join(rough)}: this framework's memory was not checked against measurements: wider bounds"
        found.append(Caution("F105", text))
    if layout.pipeline > 1:
        waiting = min(layout.pipeline, job.batch.accumulation)
        text = f"the schedule is taken to be 1F1B: the first stage holds {waiting} of {job.batch.accumulation} micro-batches at once"
        found.append(Caution("F106", text))
    if layout.expert > 1:
        found.append(Caution("F107", "tokens are taken to go evenly to all experts: a rank whose experts are preferred needs more"))
    return found
