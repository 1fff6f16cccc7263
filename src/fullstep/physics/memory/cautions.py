"""What the user should know about the memory of a step."""

from __future__ import annotations

from fullstep.job import Job
from fullstep.ledger import Caution, Instant
from fullstep.physics.memory.state import stacks_experts


def memory_cautions(job: Job, peak: Instant) -> tuple[Caution, ...]:
    """Cautions with their codes (see ``job/cautions.py`` for the table)."""
    found = []
    if peak.holdings.logits_and_loss > peak.allocated_bytes / 4 and job.step.loss != "fused":
        text = f"logits and loss are the largest part of the peak ({job.shape.vocabulary:,} words): a fused loss keeps none of it"
        found.append(Caution("F100", text))
    if not job.batch.packed and job.batch.mean_sample_tokens < job.batch.sequence_tokens:
        found.append(Caution("F101", "the longest row decides: run it first, or a run can end hours later"))
    stacked = {linear.name for block in job.shape.blocks for linear in block.linears if linear.stacked and linear.copies > 1}
    if job.method.kind != "full" and stacks_experts(job) and stacked & set(job.method.targets):
        text = "adapters on stacked experts are not counted: peft builds whole expert matrices for them; measure such a run"
        found.append(Caution("F102", text))
    return tuple(found)
