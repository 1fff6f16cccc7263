"""Seconds of collectives on a limited link against the prediction, within 15 %: ``make test-slow``.

Not among the tests that always run: whoever shares the processors makes collectives slower, most of all on the fastest link.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import pytest

from fullstep.job import Job
from fullstep.physics.network.collective import Collective, Kind
from fullstep.physics.network.cost import collective_seconds
from fullstep.physics.network.fabric import Fabric
from fullstep.physics.network.traffic import step_collectives
from fullstep.quantities import GBIT_BYTES

ROUNDS, RUNS = 3, 6
WITHIN = 0.15
RATES = (0.5, 1, 2)
KINDS: tuple[Kind, ...] = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send")
Make = Callable[..., Job]


def predicted_seconds(collective: Collective, gbit_s: float) -> float:
    found = collective_seconds(collective, Fabric("", "", None, "gloo_tcp", "gloo_tcp", gbit_s * GBIT_BYTES, 1))
    assert found is not None
    return found.likely


def measured_seconds(link: Any, kind: Kind, payload_bytes: float) -> float:
    """Median of several calls, the first of which warms up; of three such rounds the quickest, for nothing beside makes them quicker."""
    size = int(payload_bytes) // 8 * 8
    rounds = [link.run(do="collective", kind=kind, payload_bytes=size, times=RUNS).seconds[1:] for _ in range(ROUNDS)]
    return min(statistics.median(seconds) for seconds in rounds)


@pytest.mark.parametrize("payload_bytes", [4_000_000, 16_000_000])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gbit_s", RATES)
def test_of_a_collective(link: Any, gbit_s: float, kind: Kind, payload_bytes: int) -> None:
    link.limit(gbit_s)
    one = Collective("", kind, payload_bytes, 2, 2, 1, 1, "forward", False)
    assert measured_seconds(link, kind, payload_bytes) == pytest.approx(predicted_seconds(one, gbit_s), rel=WITHIN)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
@pytest.mark.parametrize("gbit_s", RATES)
def test_of_all_communication_of_a_step(link: Any, small: Make, gbit_s: float, strategy: str) -> None:
    """Every collective of one optimizer step of 27,171,328 parameters in float32, one after another and without compute."""
    link.limit(gbit_s)
    collectives = step_collectives(small(layout__strategy=strategy, machine__gpus=1, machine__nodes=2))
    sizes = {(one.kind, one.payload_bytes) for one in collectives}
    seconds = {size: measured_seconds(link, *size) for size in sizes}
    measured = sum(one.times * seconds[one.kind, one.payload_bytes] for one in collectives)
    assert measured == pytest.approx(sum(predicted_seconds(one, gbit_s) for one in collectives), rel=WITHIN)
