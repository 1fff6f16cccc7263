"""Traffic where parameters are divided: FSDP, HSDP, ZeRO-3. Units are gathered before they compute and their gradients reduced after."""

from __future__ import annotations

from collections.abc import Iterator

from fullstep.job import Job
from fullstep.job.habits import prefetches_units
from fullstep.physics.memory.sharding import DEEPSPEED_MAX_LIVE_PARAMETERS, replicates_adapters
from fullstep.physics.network.collective import Collective, Group
from fullstep.physics.network.groups import data_group, regather_group, replica_group, shard_group
from fullstep.physics.network.moved import Unit, gathers_again_to_recompute, reduce_bytes, stage_of, whole_units


def sharded_collectives(job: Job) -> Iterator[Collective]:
    """All-gathers and reduce-scatters of one optimizer step.

    Per micro-batch each unit of S bytes is gathered before its forward and, where it was let go of, before its backward; its gradients of R
    bytes are reduced in each micro-batch, or in the last alone::

        sent per rank = (n - 1) / n * (accumulation * (S + S again) + reductions * R)     R / replicas' all-reduce besides under HSDP

    Example: Llama-3.1-8B on 16 ranks, bfloat16 gathered twice, float32 reduced: ``15 / 16 * 8.03e9 * (2 + 2 + 4)`` = 60.2 GB per rank,
    less what its head and norm are not gathered again (1.0 GB).

    Args:
        job: strategy fsdp, fsdp_grad_op, hsdp or zero3

    Returns:
        collectives; payloads in bytes before sharding

    Source:
        Rajbhandari et al. 2020, ZeRO, section 7.2; torch.distributed.fsdp; counted at the boundary of hosts within 0.4 %

    Valid:
        padding of shards is not counted; nor are the sums of norms for clipping, a few bytes each. torchtitan until 2024 did not let go of
        the last block
    """
    units, micro = whole_units(job), job.batch.accumulation
    kept = kept_by_reuse(job, units)
    first_block = True
    for place, unit in enumerate(units):
        group = shard_group(job, experts=unit.experts)
        first = place == 0 or (unit.what == "a block" and first_block)
        first_block = first_block and unit.what != "a block"
        yield from _forward(unit, group, micro, exposed_first=first)
        yield from _again(job, unit, group, kept=kept.get(unit, 0), last_of_forward=_stays(unit))
        yield from _reductions(job, unit, group, exposed_last=first)


def _stays(unit: Unit) -> bool:
    """The root, or the part of it with the head, is not let go of between forward and backward."""
    return unit.what in ("the root", "norm and head")


def _forward(unit: Unit, group: Group, micro: int, *, exposed_first: bool) -> Iterator[Collective]:
    """The first unit, and the first block, are gathered while nothing computes yet."""
    gather = Collective(f"gather {unit.what}", "all_gather", unit.gathered_bytes, *group, micro * unit.copies, "forward", True)
    if exposed_first:
        yield gather._replace(times=micro, overlaps=False)
        gather = gather._replace(times=micro * (unit.copies - 1))
    yield gather


def _again(job: Job, unit: Unit, group: Group, *, kept: int, last_of_forward: bool) -> Iterator[Collective]:
    """Gathers in backward."""
    from_whom = regather_group(job, group)
    reached = unit.what != "the embedding" or unit.trained_elements  # backward does not reach a frozen one
    if from_whom is None or last_of_forward or not reached:
        return
    beside = prefetches_units(job) or job.layout.strategy == "zero3"
    micro = job.batch.accumulation
    again = Collective(
        f"gather {unit.what} again", "all_gather", unit.gathered_bytes, *from_whom, micro * (unit.copies - kept), "backward", beside
    )
    yield again
    if unit.recomputed and gathers_again_to_recompute(job):
        yield again._replace(what=f"gather {unit.what} to recompute it", times=micro * unit.recomputed)


def _reductions(job: Job, unit: Unit, group: Group, *, exposed_last: bool) -> Iterator[Collective]:
    """Reduce-scatter over the shards, and an all-reduce of each shard over its replicas.

    Those of the first block and the first unit come when all else has ended: only the embedding's backward, which is short, is left.
    """
    layout, micro = job.layout, job.batch.accumulation
    syncs = micro if layout.sync_every_micro_batch else 1
    size = unit.trained_elements * reduce_bytes(job)
    beside = prefetches_units(job) or layout.strategy == "zero3"
    window = syncs / micro
    if replicates_adapters(job):
        everybody = data_group(job)
        times = syncs * unit.copies
        yield Collective(f"reduce gradients of {unit.what}", "all_reduce", size, *everybody, times, "backward", False, window)
        return
    found = [Collective(f"reduce gradients of {unit.what}", "reduce_scatter", size, *group, syncs, "backward", beside, window)]
    if layout.data_parallel > layout.shards:
        what, replicas = f"reduce gradients of {unit.what} over replicas", replica_group(job)
        found.append(Collective(what, "all_reduce", size / group.ranks, *replicas, syncs, "backward", beside, window))
    for one in found:
        if exposed_last:
            yield one._replace(overlaps=False)
        yield one._replace(times=syncs * (unit.copies - exposed_last))


def kept_by_reuse(job: Job, units: tuple[Unit, ...]) -> dict[Unit, int]:
    """Blocks that ZeRO-3 does not let go of because backward needs them soon: fewer than ``max_reuse_distance`` elements lie between.

    A block with D elements behind it is used again after 2 D of them, forward and back.

    Example: 500 M elements or more of head: no block is kept, 2 * 500 M being the default distance of 10^9.

    Returns:
        number of blocks kept, by unit

    Source:
        DeepSpeed, runtime/zero/partitioned_param_coordinator.py, __params_to_release

    Valid:
        takes the distance as equal to max_live_parameters, as their defaults are
    """
    if job.layout.strategy != "zero3":
        return {}
    stated = job.layout.max_live_parameters
    limit = DEEPSPEED_MAX_LIVE_PARAMETERS if stated is None else stated
    shape, stage = job.shape, stage_of(job)
    head = shape.head_parameters or shape.embedding_parameters
    blocks = [unit for unit in units if unit.what == "a block"]
    kinds = list(dict.fromkeys(stage.layers))
    behind, kept = head if stage.head else 0, dict.fromkeys(range(len(blocks)), 0)
    for kind in reversed(stage.layers):
        if 2 * behind >= limit or len(kinds) != len(blocks):
            break
        kept[kinds.index(kind)] += 1
        behind += shape.blocks[kind].parameters
    return {blocks[index]: count for index, count in kept.items()}
