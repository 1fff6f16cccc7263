"""From allocated to reserved and to what the device shows.

The caching allocator gives nothing back while it can grow. It keeps blocks by size: the tensors of the loss (hundreds of MiB
to several GiB each) and those of a block seldom fit into each other's places, so most of what both need at their own worst moment
stays reserved side by side. Gathered parameters are allocated on a stream of their own, whose blocks the compute stream cannot use.
When the card is full, cached blocks are given back, so reserved then lies between allocated and what is there.
"""

from __future__ import annotations

from typing import NamedTuple

from fullstep.hardware import device_overheads
from fullstep.job import Job, Settings
from fullstep.job.outside import outside_allocator
from fullstep.ledger import Instant
from fullstep.physics.memory.allocator import AllocatorFacts, allocator_facts, layout_kind, trust_in
from fullstep.physics.memory.scene import Scene
from fullstep.quantities import Bounds


class Counters(NamedTuple):
    """Bytes on one GPU."""

    allocated: Bounds
    reserved: Bounds
    device: Bounds
    needed: Bounds


def counters(job: Job, scene: Scene, instants: tuple[Instant, ...]) -> Counters:
    """The three counters and what the verdict compares, each with bounds [bytes].

    allocated: the largest instant. reserved: allocated or the sum of the pools, and no more than the card has. device: reserved and
    what lies outside torch's allocator. needed: ``allocated * (1 + unavoidable fragmentation) + context + communicator``.

    Args:
        job: layout, card and framework
        scene: pools of the blocks and of the loss
        instants: of the step

    Returns:
        low, likely and high of each

    Source:
        ``data/allocator.json`` and ``device_overheads.csv``, where every figure has its evidence; torch's CUDACachingAllocator.cpp

    Valid:
        see the accuracy table; reserved on a nearly full card depends on the order of requests and is the least certain
    """
    facts = allocator_facts()
    peak = max(instant.allocated_bytes for instant in instants)
    trust = trust_in(job, facts)
    allocated = Bounds(peak * (1 - trust.below), peak, peak * (1 + trust.above))
    outside = outside_bytes(job)
    likely = max(peak, _pools(job, scene, instants, facts))
    room = job.machine.usable_bytes
    if room is not None and likely + outside.likely > room:
        likely = peak + facts.full_card_share * max(0.0, room - outside.likely - peak)
    spread = facts.reserved_spread[layout_kind(job)]
    reserved = Bounds(
        max(allocated.low, likely - spread.below * peak - (peak - allocated.low)),
        likely,
        likely + spread.above * peak + (allocated.high - peak),
    )
    return on_the_card(job, allocated, reserved)


def outside_bytes(job: Settings) -> Bounds:
    """What lies outside torch's allocator: the CUDA context and one communicator for each group of ranks that a rank belongs to [bytes].

    Groups: data-parallel, and one for every degree above one. Low: the further ones share the first one's buffers.

    Source:
        ``device_overheads.csv``; torch.distributed makes a communicator for each process group when it is first used; NCCL shares buffers
        of communicators that were split off (ncclCommSplit with splitShare)
    """
    layout, machine = job.layout, job.machine
    outside = outside_allocator(job)
    degrees = (layout.tensor, layout.pipeline, layout.context, layout.expert)
    groups = sum(degree > 1 for degree in degrees) + (layout.data_parallel > 1)
    if layout.strategy != "single":
        groups -= 1  # counted already
    if groups < 1 or max(degrees) == 1:
        return outside
    overheads = device_overheads(machine.card)
    one = overheads.communicator_bytes if machine.nodes == 1 else overheads.communicator_between_nodes_bytes
    shared = 0 if layout.strategy != "single" else one.low
    return outside + Bounds(shared, overheads.communicator_bytes.likely * (groups - 1) + one.likely, groups * one.high)


def on_the_card(job: Settings, allocated: Bounds, reserved: Bounds) -> Counters:
    """Both counters of torch, and what follows from them for the card, each with bounds [bytes].

    The cache stops where the card ends: reserved and device are at most what is there, where the likely value leaves that open.

    Args:
        job: layout and card
        allocated: at its peak
        reserved: at its peak, as it would be with room for its high end
    """
    outside, room = outside_bytes(job), job.machine.usable_bytes
    if room is not None and room - outside.low > reserved.likely:
        reserved = reserved._replace(high=max(allocated.high, min(reserved.high, room - outside.low)))
    device = reserved + outside
    if room is not None and device.high > room > device.likely and allocated.high + outside.high <= room:
        device = device._replace(high=float(room))
    unavoidable = allocator_facts().unavoidable_fragmentation
    needed = Bounds(
        allocated.low * (1 + unavoidable.low) + outside.low,
        allocated.likely * (1 + unavoidable.likely) + outside.likely,
        allocated.high * (1 + unavoidable.high) + outside.high,
    )
    return Counters(allocated, reserved, device, needed)


def _pools(job: Job, scene: Scene, instants: tuple[Instant, ...], facts: AllocatorFacts) -> float:
    """Sum of the pools: state, what blocks keep, one block at work, the loss, gathered parameters twice."""
    if job.step.expandable_segments:
        return max(instant.allocated_bytes for instant in instants) * (1 + facts.expandable_fragmentation)
    found = {instant.at: instant.holdings for instant in instants}
    loss_pool = scene.root.head.pool
    gathered = 2 * max(holdings.gathered_parameters for holdings in found.values())
    after_backward = sum(found["optimizer_step"]) + loss_pool + gathered
    block = scene.block_phase
    work = block.work - scene.exchanged  # its few large requests find places among those that the loss has left
    fragments = facts.block_fragmentation[layout_kind(job)] * (work + block.retained)
    state = scene.weights + scene.optimizer_states + scene.buffers + scene.gradients + scene.waiting
    shared = min(facts.shared_with_loss * work, loss_pool) if scene.root.head.logits else 0.0
    during_backward = state + block.kept + work + fragments + max(loss_pool, block.retained) - shared + gathered
    if job.layout.is_fsdp:  # temporaries as large as flat shards find no places among those of a block
        extra = max(0.0, scene.step_temporaries - facts.shared_with_loss * loss_pool)
        return max(after_backward, during_backward + extra)
    return max(after_backward, during_backward)
