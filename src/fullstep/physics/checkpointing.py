"""What a checkpoint from which training can go on holds, and how long training stands while it is saved."""

from __future__ import annotations

from math import floor

from fullstep.job import Job
from fullstep.physics.memory.optimizer import state_bytes
from fullstep.physics.memory.weights import weight_bytes
from fullstep.physics.timing.rates import card_rates, seconds_at
from fullstep.quantities import Bounds

_GB = 1e9
_MINUTE = 60.0


def resumable_bytes(job: Job) -> float:
    """Weights that train, their float32 copies and the optimizer's states, over all ranks [bytes]; what is frozen is on disk already.

    Example: Llama-3.1-8B in float32 with AdamW: ``8.03e9 * (4 + 8)`` = 96.4 GB. A pilot's ``measured.checkpoint_gb`` outranks it.

    Source:
        torch.distributed.checkpoint, get_state_dict: model and optimizer; DeepSpeed, optimizer states with float32 partitions
    """
    if "checkpoint_gb" in job.measured:
        return float(job.measured["checkpoint_gb"] * _GB)
    weights = weight_bytes(job)
    trained = weights.total if job.method.kind == "full" else weights.adapters + weights.modules + weights.masters
    return trained + state_bytes(job)


def stall_seconds(job: Job) -> Bounds | None:
    """How long one save holds training up [s]; None: ``machine.storage_write_gb_s`` is not stated.

    ::

        synchronous     bytes / (rate per node * nodes); in one file: bytes / rate per node
        asynchronous    a rank's part copied to its host, and what the write takes longer than the interval between saves

    Example: 96.4 GB from one node at 1 GB/s: 96.4 s.

    Source:
        torch.distributed.checkpoint, async_save: training waits for staging alone

    Valid:
        storage writes at the stated rate; steps that run beside an upload are not slowed here
    """
    writing, wanted, layout = writing_seconds(job), job.checkpoint, job.layout
    if writing is None:
        return None
    if not wanted.asynchronous:
        return Bounds.exact(writing)
    waits = Bounds.exact(max(0.0, writing - wanted.lose_at_most_minutes * _MINUTE))
    rates = None if job.machine.card is None else card_rates(job.machine.card)
    if rates is None or rates.pcie_bytes_per_second is None:
        return waits
    held = resumable_bytes(job) / (layout.state_ranks * layout.tensor * layout.pipeline)  # replicas stage it all, and one of them writes
    return waits + seconds_at(held, rates.pcie_bytes_per_second)


def writing_seconds(job: Job) -> float | None:
    """Of one save: all nodes write their shards at once, one file comes from one [s]."""
    rate = job.machine.storage_write_bytes_per_second
    return None if rate is None else resumable_bytes(job) / (rate * (job.machine.nodes if job.checkpoint.format == "sharded" else 1))


def checkpoint_seconds(job: Job, training: Bounds) -> Bounds | None:
    """What all saves of a run take of its time [s]: one each ``lose_at_most_minutes`` of training, and one at the end.

    Args:
        job: complete
        training: of the run without saves [s]

    Returns:
        [s]; None: what storage writes is not stated
    """
    stall, writing = stall_seconds(job), writing_seconds(job)
    if stall is None or writing is None:
        return None
    last = writing if job.checkpoint.asynchronous else 0.0  # nothing runs beside the last one
    interval = job.checkpoint.lose_at_most_minutes * _MINUTE
    return Bounds(*(one * (floor(seconds / interval) + 1) + last for one, seconds in zip(stall, training, strict=True)))
