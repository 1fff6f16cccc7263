"""Stages and the micro-batches that wait in them, against the schedules that frameworks print."""

from __future__ import annotations

import pytest

from fullstep.physics.memory.pipeline import layers_per_stage, micro_batches_in_flight


@pytest.mark.parametrize("counts_ends", [True, False])
@pytest.mark.parametrize(("layers", "stages"), [(32, 4), (33, 4), (80, 16), (5, 5), (61, 8), (2, 1)])
def test_every_layer_has_its_stage(layers: int, stages: int, counts_ends: bool) -> None:
    found = layers_per_stage(layers, stages, counts_ends)
    assert len(found) == stages
    assert sum(found) == layers
    assert min(found) >= 1
    assert max(found) - min(found) <= 2


def test_one_forward_one_backward() -> None:
    """Narayanan et al. 2021, figure 4: eight micro-batches on four devices; device 1 runs four before its first backward."""
    assert [micro_batches_in_flight(4, stage, 8) for stage in range(4)] == [4, 3, 2, 1]
    assert micro_batches_in_flight(4, 0, 2) == 2
