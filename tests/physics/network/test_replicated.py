"""DDP, ZeRO-1 and ZeRO-2 by hand on Llama-3.1-8B."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fullstep.job import Job
from fullstep.physics.network.collective import sent_bytes_per_gpu_per_step
from fullstep.physics.network.traffic import step_collectives

Make = Callable[..., Job]
PARAMETERS = 8_030_261_248
EIGHT = {"machine__gpu": "H100-SXM", "machine__gpus": 8}


def sent(job: Job) -> float:
    return sum(sent_bytes_per_gpu_per_step(step_collectives(job)))


@pytest.mark.parametrize(
    ("keys", "per_parameter"),
    [
        ({"layout__strategy": "ddp"}, 2 * 2),
        ({"layout__strategy": "ddp", "batch__accumulation": 4}, 2 * 2),  # no_sync
        ({"layout__strategy": "ddp", "batch__accumulation": 4, "layout__sync_every_micro_batch": True}, 4 * 2 * 2),
        ({"layout__strategy": "zero1"}, 2 * 4 + 2),  # DeepSpeed reduces by all-reduce, in float32
        ({"layout__strategy": "zero1", "layout__implementation": "megatron"}, 4 + 2),
        ({"layout__strategy": "zero2", "batch__accumulation": 4}, 4 * 2 * 4 + 2),
        ({"layout__strategy": "zero2", "precision__reduce": "bfloat16"}, 2 * 2 + 2),
    ],
)
def test_bytes_per_parameter_over_eight(eight_billion: Make, keys: dict[str, object], per_parameter: float) -> None:
    assert sent(eight_billion(**EIGHT, **keys)) == pytest.approx(7 / 8 * PARAMETERS * per_parameter, rel=1e-9)


def test_lora_reduces_only_what_trains(eight_billion: Make) -> None:
    """41,943,040 adapter elements in float32."""
    job = eight_billion(method__kind="lora", method__targets="all-linear", layout__strategy="ddp", **EIGHT)
    assert sent(job) == pytest.approx(2 * 7 / 8 * 41_943_040 * 4, rel=1e-9)


def test_the_last_bucket_holds_the_embedding_and_waits(eight_billion: Make) -> None:
    """1.05 GB in bfloat16 that no compute is left to hide, with what stood in the bucket."""
    last = [one for one in step_collectives(eight_billion(layout__strategy="ddp", **EIGHT)) if not one.overlaps]
    assert len(last) == 1
    assert 128_256 * 4096 * 2 <= last[0].payload_bytes < 128_256 * 4096 * 2 + 25 * 2**20


def test_with_no_sync_only_the_last_micro_batch_hides_the_reduction(eight_billion: Make) -> None:
    found = step_collectives(eight_billion(layout__strategy="ddp", batch__accumulation=4, **EIGHT))
    assert {one.window for one in found if one.overlaps} == {0.25}


def test_megatrons_optimizer_within_a_node_reduces_shards_between_nodes(eight_billion: Make) -> None:
    job = eight_billion(layout__strategy="zero1", layout__implementation="megatron", machine__nodes=4, layout__shards=8, **EIGHT)
    between = sent_bytes_per_gpu_per_step(step_collectives(job)).between_nodes
    assert between == pytest.approx(2 * 3 / 4 * PARAMETERS * 4 / 8, rel=1e-9)


def test_torchs_optimizer_broadcasts_tensor_by_tensor(eight_billion: Make) -> None:
    """291 tensors of Llama-3.1-8B: 9 in each of 32 blocks, and three."""
    job = eight_billion(layout__strategy="zero1", layout__implementation="torch", **EIGHT)
    stepped = [one for one in step_collectives(job) if one.phase == "after_backward"]
    assert sum(one.times for one in stepped) == 291
    assert sum(one.times * one.payload_bytes for one in stepped) == pytest.approx(2 * PARAMETERS)


def test_nothing_is_exchanged_on_one_gpu(eight_billion: Make) -> None:
    assert step_collectives(eight_billion(machine__gpu="H100-SXM", machine__gpus=1)) == ()
