"""From allocated to reserved, device and needed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fullstep.hardware import device_overheads
from fullstep.job import Job
from fullstep.physics import estimate_memory
from fullstep.physics.memory.allocator import allocator_facts
from fullstep.physics.memory.counters import outside_bytes

Make = Callable[..., Job]
LORA = {"method__kind": "lora", "step__activation_checkpointing": "full"}


def test_one_gpu_adds_its_context(eight_billion: Make) -> None:
    found = estimate_memory(eight_billion(**LORA))
    context = device_overheads(None).context_bytes
    assert found.device.likely - found.reserved.likely == pytest.approx(context.likely)
    unavoidable = allocator_facts().unavoidable_fragmentation.likely
    assert found.needed.likely == pytest.approx(found.allocated.likely * (1 + unavoidable) + context.likely)


def test_several_gpus_add_a_communicator(eight_billion: Make) -> None:
    overheads = device_overheads(None)
    within = estimate_memory(eight_billion(**LORA, layout__strategy="ddp", machine__gpus=2))
    between = estimate_memory(eight_billion(**LORA, layout__strategy="ddp", machine__gpus=2, machine__nodes=2))
    naive = estimate_memory(eight_billion(**LORA, layout__strategy="layer_split", machine__gpus=2))
    context = overheads.context_bytes.likely
    assert within.device.likely - within.reserved.likely == pytest.approx(context + overheads.communicator_bytes.likely)
    assert between.device.likely - between.reserved.likely == pytest.approx(context + overheads.communicator_between_nodes_bytes.likely)
    assert naive.device.likely - naive.reserved.likely == pytest.approx(context)  # one process


def test_expandable_segments_shrink_reserved(eight_billion: Make) -> None:
    plain, expandable = (estimate_memory(eight_billion(**LORA, step__expandable_segments=on)) for on in (False, True))
    assert expandable.allocated == plain.allocated
    share = allocator_facts().expandable_fragmentation
    assert expandable.reserved.likely == pytest.approx(plain.allocated.likely * (1 + share))
    assert expandable.reserved.likely < plain.reserved.likely


def test_the_cache_stops_where_the_card_ends(eight_billion: Make) -> None:
    """A run whose cache would outgrow the card keeps allocated and gives cached blocks back."""
    free = estimate_memory(eight_billion(**LORA))
    total = (free.allocated.likely + 1.5 * 2**30) / 2**30
    tight = estimate_memory(eight_billion(**LORA, machine__gpu_memory_gib=total))
    assert tight.allocated == free.allocated
    assert tight.reserved.likely < free.reserved.likely
    assert tight.device.likely <= total * 2**30
    assert tight.needed == free.needed


def test_gathered_parameters_have_a_stream_of_their_own(eight_billion: Make) -> None:
    """Their blocks cannot be used by computation: reserved over allocated is more under FSDP than alone."""
    alone = estimate_memory(eight_billion(step__activation_checkpointing="full"))
    fsdp = estimate_memory(eight_billion(step__activation_checkpointing="full", layout__strategy="fsdp", machine__gpus=8))
    assert fsdp.reserved.likely / fsdp.allocated.likely > alone.reserved.likely / alone.allocated.likely


def test_each_group_of_ranks_has_its_communicator(eight_billion: Make) -> None:
    """Four GPUs: data-parallel alone one; with two tensor ranks two; four tensor ranks without data-parallel ones one."""
    one = device_overheads(None).communicator_bytes
    alone = outside_bytes(eight_billion(machine__gpus=4))
    both = outside_bytes(eight_billion(machine__gpus=4, layout__tensor=2))
    assert both.likely - alone.likely == one.likely
    assert both.low == alone.low
    assert outside_bytes(eight_billion(machine__gpus=4, layout__tensor=4, layout__strategy="single")) == alone
