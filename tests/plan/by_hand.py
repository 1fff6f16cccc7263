"""An estimator made by hand: round numbers, so that every verdict below can be redone in the head.

One GPU holds 80 GiB of state divided by ``shards``, and for each row 10 GiB of activations (half of it with selective
recomputation, a tenth with full) and 4 GiB of logits (none with a fused loss). LoRA has 20 GiB of state, QLoRA 8, an 8-bit
optimizer takes a quarter off. The bounds are 1 GiB around the likely value.
"""

from __future__ import annotations

from fullstep.job import Job
from fullstep.ledger import Answer, Holdings, HostMemory, Instant, Memory, OtherPeaks
from fullstep.plan.trial import Size
from fullstep.plan.verdict import judge, judge_host
from fullstep.quantities import GIB, Bounds

RECOMPUTED = {"none": 1.0, "selective": 0.5, "full": 0.1}


def by_hand(state_gib: float = 80, host_gib: float = 10, load_gib: float | None = None) -> Size:
    """The estimator described above."""

    def size(job: Job) -> Answer:
        state = {"lora": 20.0, "qlora": 8.0}.get(job.method.kind, state_gib) * (0.75 if "8bit" in job.optimizer.name else 1)
        state = 0 if job.layout.offload_parameters else state / job.layout.shards
        length = job.batch.sequence_tokens / 4096
        activations = 10 * job.batch.micro_batch * length * RECOMPUTED[str(job.step.activation_checkpointing)]
        activations *= 0.5 if job.step.activation_offload else 1
        logits = 4 * job.batch.micro_batch * length if job.step.loss == "standard" else 0
        return answer_of(job, state, activations, logits, host=host_gib, load=load_gib)

    return size


def answer_of(job: Job, state: float, activations: float, logits: float, *, host: float = 10, load: float | None = None) -> Answer:
    """An answer from GiB; needed is 1 GiB around the sum."""
    holdings = Holdings(weights=state * GIB, activations=activations * GIB, logits_and_loss=logits * GIB)
    likely = sum(holdings)
    bounds = Bounds(likely - GIB, likely, likely + GIB)
    peaks = OtherPeaks(load=None if load is None else load * GIB)
    judgement = judge(bounds, peaks, job.machine.usable_bytes, job.goal.reserve_fraction)
    memory = Memory(
        evidence="estimated", allocated_peak_bytes=bounds, reserved_peak_bytes=bounds, device_peak_bytes=bounds, needed_bytes=bounds,
        peak_at="loss", instants=(Instant("loss", holdings),), other_peaks=peaks, usable_bytes=job.machine.usable_bytes,
        verdict=judgement.verdict, reason=judgement.reason,
    )  # fmt: skip
    verdict = judge_host(host * GIB, job.machine.host_memory_bytes, job.goal.reserve_fraction)
    host_memory = HostMemory(evidence="estimated", memory_peak_bytes=host * GIB, at="load", verdict=verdict)
    return Answer(parameters=job.shape.parameters, trainable_parameters=1, memory=memory, host=host_memory)
