"""Bytes that two ranks really send, by the counters of their interfaces and without the headers of packets, within 1 %.

On the wire gloo's reduce-scatter is an all-reduce, which the comparison allows for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from fullstep.job import Job
from fullstep.physics.network.collective import Collective, Kind, sent_bytes_per_gpu_per_step
from fullstep.physics.network.traffic import step_collectives

pytestmark = pytest.mark.real_classes
FAST_GBIT_S = 10
KINDS: tuple[Kind, ...] = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send")
Make = Callable[..., Job]


def on_the_wire(collectives: tuple[Collective, ...]) -> float:
    """What each rank sends with gloo [bytes]."""
    found = [one._replace(kind="all_reduce") if one.kind == "reduce_scatter" else one for one in collectives]
    return sent_bytes_per_gpu_per_step(found).between_nodes


@pytest.mark.parametrize("payload_bytes", [400_000, 8_000_000])
@pytest.mark.parametrize("kind", KINDS)
def test_of_a_collective(link: Any, kind: Kind, payload_bytes: int) -> None:
    link.limit(FAST_GBIT_S)
    found = link.run(do="collective", kind=kind, payload_bytes=payload_bytes, times=3)
    predicted = on_the_wire((Collective("", kind, payload_bytes, 2, 2, 1, 3, "forward", False),))
    assert max(found.sent_bytes) == pytest.approx(predicted, rel=0.01)
    if kind != "send":
        assert math.isclose(*found.sent_bytes, rel_tol=0.01)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_of_a_training_step(link: Any, small: Make, small_config: dict[str, Any], strategy: str) -> None:
    """A llama of 27,171,328 parameters in float32, by the class of transformers under torch's DDP and FSDP2."""
    link.limit(FAST_GBIT_S)
    found = link.run(do="step", strategy=strategy, config=small_config, tokens=16, times=1)
    job = small(layout__strategy=strategy, machine__gpus=1, machine__nodes=2)
    predicted = on_the_wire(step_collectives(job))
    assert found.sent_bytes == pytest.approx([predicted] * 2, rel=0.01)
