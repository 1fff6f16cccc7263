"""Traffic where every GPU computes with weights of its own: DDP, ZeRO-1, ZeRO-2."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import ceil

from fullstep.job import Job
from fullstep.physics.memory.choices import compute_bytes
from fullstep.physics.memory.sharding import DEEPSPEED_BUCKET_ELEMENTS
from fullstep.physics.memory.weights import trainable
from fullstep.physics.network.collective import Collective
from fullstep.physics.network.groups import data_group, replica_group, shard_group
from fullstep.physics.network.moved import Stage, Unit, reduce_bytes, stage_of, whole_units
from fullstep.quantities import DTYPE_BYTES

DDP_FIRST_BUCKET_BYTES = 2**20
"""torch.distributed: _DEFAULT_FIRST_BUCKET_BYTES"""
DDP_BUCKET_BYTES = 25 * 2**20
"""DistributedDataParallel's bucket_cap_mb"""

OUTSIDE = frozenset(("the root", "the embedding", "norm and head"))
"""units that are no block"""


def bucket_sizes(parameters: list[float], cap_bytes: float) -> list[float]:
    """Buckets as DDP fills them [bytes]: a parameter joins the open bucket, which closes once it has reached its limit.

    The limit of the first is 1 MiB, so that reduction starts early. A parameter is never cut: an embedding of 1 GB is one bucket.

    Example: parameters of 1, 20, 20 and 3 MiB, cap 25: buckets of 1, 40 and 3 MiB.

    Args:
        parameters: in the order in which gradients appear [bytes]
        cap_bytes: limit of all but the first [bytes]

    Returns:
        [bytes] of each bucket

    Source:
        torch/csrc/distributed/c10d/reducer.cpp, compute_bucket_assignment_by_size; Li et al. 2020, PyTorch Distributed, section 3.2.3

    >>> mib = 2.0**20
    >>> [size / mib for size in bucket_sizes([mib, 20 * mib, 20 * mib, 3 * mib], 25 * mib)]
    [1.0, 40.0, 3.0]
    """
    found: list[float] = []
    filled, limit = 0.0, float(DDP_FIRST_BUCKET_BYTES)
    for size in parameters:
        filled += size
        if filled >= limit:
            found.append(filled)
            filled, limit = 0.0, cap_bytes
    return [*found, filled] if filled else found


def ddp_collectives(job: Job) -> Iterator[Collective]:
    """DDP's all-reduces: bucket by bucket beside backward, the last one with the embedding when backward has ended.

    ::

        sent per rank = 2 * (n - 1) / n * trained elements * bytes of the reduced dtype     (* accumulation without no_sync)

    Example: 8.03e9 parameters in bfloat16 on 16 ranks: ``2 * 15 / 16 * 16.06`` = 30.1 GB.

    Source:
        torch.nn.parallel.DistributedDataParallel; counted at the boundary of hosts within 0.4 %
    """
    micro = job.batch.accumulation
    syncs = micro if job.layout.sync_every_micro_batch else 1
    cap = float(job.layout.bucket_bytes or DDP_BUCKET_BYTES)
    for experts in (False, True):
        buckets = bucket_sizes(_gradients_in_order(job, stage_of(job), experts=experts), cap)
        if not buckets:
            continue
        group = data_group(job, experts=experts)
        exposed = buckets.pop() if not experts else 0.0
        what = "reduce gradients of experts" if experts else "reduce gradients"
        for size, count in Counter(buckets).items():
            yield Collective(what, "all_reduce", size, *group, syncs * count, "backward", True, syncs / micro)
        if exposed:
            yield Collective(f"{what}, last bucket", "all_reduce", exposed, *group, syncs, "backward", False)


def _gradients_in_order(job: Job, stage: Stage, *, experts: bool) -> list[float]:
    """Gradients of one rank as backward makes them: head, blocks from the last on, embedding [bytes as they are reduced]."""
    shape, layout, element = job.shape, job.layout, reduce_bytes(job)
    if job.method.kind != "full":
        trains = trainable(job)
        sizes = [float(trains.modules)] + [float(trains.adapters_per_block[kind]) for kind in reversed(stage.layers)]
        return [size * element for size in sizes if size] if not experts else []
    apart = layout.expert > 1
    found: list[float] = []
    for kind in reversed(stage.layers):
        block = shape.blocks[kind]
        for linear in reversed(block.linears):
            if experts == (apart and linear.copies > 1):
                found.append(linear.parameters / layout.tensor / (layout.expert if experts else 1))
        if not experts:
            found.append(float(block.parameters - block.linear_parameters))
    if experts:
        return [size * element for size in found]
    outside = shape.parameters - shape.block_parameters - shape.embedding_parameters
    head = [outside / layout.tensor] if stage.head else []
    embedding = [shape.embedding_parameters / layout.tensor] if stage.embedding or (stage.head and shape.tied) else []
    return [size * element for size in (*head, *found, *embedding) if size]


def zero_collectives(job: Job) -> Iterator[Collective]:
    """ZeRO-1 and ZeRO-2: gradients are reduced to whoever steps on them, and the stepped weights are gathered.

    ::

        megatron     reduce-scatter of R, all-gather of W         (n - 1) / n * (R + W)
        deepspeed    all-reduce of R, all-gather of W             (n - 1) / n * (2 R + W)
        torch        the same, the gather as broadcasts in turn   (n - 1) / n * (2 R + W)

    DeepSpeed's stages 1 and 2 reduce by all-reduce and keep their part, although the setting is called reduce_scatter.

    Example: 8.03e9 parameters on 8 ranks, R in bfloat16, W in bfloat16: deepspeed ``7 / 8 * (32.1 + 16.1)`` = 42.2 GB per rank.

    Args:
        job: strategy zero1 or zero2

    Returns:
        collectives; R in each micro-batch or in the last alone, W once after the step

    Source:
        DeepSpeed, runtime/zero/stage_1_and_2.py, average_tensor and allreduce_and_scatter; Megatron-LM, distrib_optimizer.py;
        torch.distributed.optim.ZeroRedundancyOptimizer, counted at the boundary of hosts within 0.2 %

    Valid:
        torch's broadcasts, one for each tensor, are written as gathers of as many bytes: a ring takes as many steps for either
    """
    micro = job.batch.accumulation
    syncs = micro if job.layout.sync_every_micro_batch else 1
    scatters = job.layout.implementation == "megatron"
    beside = job.layout.implementation != "deepspeed"  # overlap_comm is off by default in stages 1 and 2
    for unit in whole_units(job):
        if not unit.trained_elements:
            continue
        shards = shard_group(job, experts=unit.experts)
        calls, elements = _buckets(job, unit)
        size = elements * reduce_bytes(job)
        group = shards if scatters else data_group(job, experts=unit.experts)
        what, window = f"reduce gradients of {unit.what}", syncs / micro
        kept = size / group.ranks
        yield Collective(
            what, "reduce_scatter" if scatters else "all_reduce", size, *group, syncs * calls, "backward", beside and calls > 1, window
        )
        if scatters and job.layout.data_parallel > job.layout.shards:
            replicas = replica_group(job)
            yield Collective(f"{what} over replicas", "all_reduce", kept, *replicas, syncs * calls, "backward", beside, window)
        stepped, tensors = elements * _trained_bytes(job), _broadcast_tensors(job, unit)
        what = f"gather stepped weights of {unit.what}"
        yield Collective(what, "all_gather", stepped / tensors, *shards, calls * tensors, "after_backward", False)


def _broadcast_tensors(job: Job, unit: Unit) -> int:
    """Into how many calls the gather of a unit falls: under torch its tensors, each broadcast by the rank that stepped on it; else 1.

    A block has a weight per product and two norms, or two adapters per product; embedding, last norm and head lie outside.

    Source:
        torch.distributed.optim.ZeroRedundancyOptimizer, _broadcast_params_from_rank (parameters_as_bucket_view false, the default)
    """
    if job.layout.implementation != "torch":
        return 1
    kinds = stage_of(job).layers
    products = round(sum(len(job.shape.blocks[kind].linears) for kind in kinds) / len(kinds))
    if job.method.kind != "full":
        return 2 * products
    return products + 2 if unit.what not in OUTSIDE else 3


def _buckets(job: Job, unit: Unit) -> tuple[int, float]:
    """Calls for all units of a kind, and elements of each: as many units at once as DeepSpeed's bucket takes (500 M elements)."""
    whole = unit.trained_elements * unit.copies
    if job.layout.implementation == "deepspeed":
        stated = job.layout.bucket_bytes
        bucket = DEEPSPEED_BUCKET_ELEMENTS if stated is None else stated / compute_bytes(job)
        calls = max(1, ceil(whole / bucket))
        return calls, whole / calls
    return unit.copies, unit.trained_elements


def _trained_bytes(job: Job) -> int:
    """Bytes per element of the weights that were stepped."""
    return DTYPE_BYTES[job.precision.weights if job.method.kind == "full" else job.precision.adapters]
