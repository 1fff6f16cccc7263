"""What each GPU keeps and gathers under each strategy, by hand from Llama-3.1-8B over eight GPUs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fullstep.job import Job
from fullstep.physics.memory.optimizer import state_bytes
from fullstep.physics.memory.sharding import Reduction, Shares, Units, reduction, shares, unit_padding, units
from fullstep.physics.memory.weights import gradient_bytes, trainable, weight_bytes

Make = Callable[..., Job]
PARAMETERS = 8_030_261_248
EMBEDDING = 128_256 * 4096
ROOT = 2 * EMBEDDING + 4096
BLOCK = (PARAMETERS - ROOT) // 32
LORA = {"method__kind": "lora", "method__targets": "all-linear"}
ADAPTERS = 41_943_040


def held(job: Job) -> Shares:
    return shares(job, weight_bytes(job), gradient_bytes(job), state_bytes(job), trainable(job))


def gathered(job: Job) -> Units:
    return units(job, weight_bytes(job), trainable(job))


@pytest.mark.parametrize(
    ("strategy", "weights", "gradients", "states"),
    [
        ("ddp", 2, 2, 4),  # nothing is divided
        ("fsdp", 2 / 8, 2 / 8, 4 / 8),
        ("hsdp", 2 / 8, 2 / 8, 4 / 8),  # one node: all its GPUs
        ("fsdp_grad_op", 2 / 8, 2 / 8, 4 / 8),
        ("zero1", 2 + 4 / 8, 2, 8 / 8),  # masters and states of the own part; weights and gradients whole
        ("zero2", 2 + 4 / 8, 2 / 8, 8 / 8),
        ("zero3", (2 + 4) / 8, 2 / 8, 8 / 8),
    ],
)
def test_what_each_strategy_divides(eight_billion: Make, strategy: str, weights: float, gradients: float, states: float) -> None:
    found = held(eight_billion(layout__strategy=strategy, machine__gpus=8))
    assert (found.weights, found.gradients, found.optimizer_states) == (weights * PARAMETERS, gradients * PARAMETERS, states * PARAMETERS)


def test_hsdp_divides_within_a_node(eight_billion: Make) -> None:
    two = held(eight_billion(layout__strategy="hsdp", machine__gpus=8, machine__nodes=2))
    assert two.weights == 2 * PARAMETERS / 8
    assert held(eight_billion(layout__strategy="fsdp", machine__gpus=8, machine__nodes=2)).weights == 2 * PARAMETERS / 16


def test_zero_offload_moves_states_and_gradients(eight_billion: Make) -> None:
    found = held(eight_billion(layout__strategy="zero2", machine__gpus=8, layout__offload_optimizer=True))
    assert (found.weights, found.gradients, found.optimizer_states) == (2 * PARAMETERS, 0, 0)


def test_layer_split_gives_the_last_gpu_its_blocks_and_the_head(eight_billion: Make) -> None:
    found = held(eight_billion(layout__strategy="layer_split", machine__gpus=4))
    part = 8 * BLOCK + EMBEDDING
    assert found.weights == pytest.approx(2 * part, rel=1e-4)
    assert found.gradients == pytest.approx(2 * part, rel=1e-3)


def test_zero3_keeps_4_bit_weights_whole_and_fsdp_only_their_constants(eight_billion: Make) -> None:
    weights = weight_bytes(eight_billion(method__kind="qlora"))
    packed = weights.total - weights.constants - weights.adapters
    zero3 = held(eight_billion(method__kind="qlora", layout__strategy="zero3", machine__gpus=8))
    fsdp = held(eight_billion(method__kind="qlora", layout__strategy="fsdp", machine__gpus=8))
    assert zero3.weights == pytest.approx(weights.blocks + weights.outside + weights.adapters / 8)
    assert fsdp.weights == pytest.approx(weights.constants + (packed + weights.adapters) / 8)


def test_units_in_the_compute_dtype(eight_billion: Make) -> None:
    """float32 shards, gathered in bfloat16, reduced in float32: the root is embedding, norm and head."""
    found = gathered(eight_billion(precision__weights="float32", layout__strategy="fsdp", machine__gpus=8))
    assert found.root == 2 * ROOT
    assert found.root / 2**30 == pytest.approx(1.96, abs=0.005)  # the published figure
    assert found.blocks == (2 * BLOCK,)
    assert (found.block_gradients, found.root_gradients, found.reduce_factor) == ((2 * BLOCK,), 2 * ROOT, 2)


def test_units_of_adapters_bring_no_gradient_of_the_base(eight_billion: Make) -> None:
    found = gathered(eight_billion(**LORA, layout__strategy="fsdp", machine__gpus=8))
    assert found.blocks == (2 * BLOCK + 2 * ADAPTERS // 32,)  # float32 adapters are gathered in bfloat16
    assert found.block_gradients == (2 * ADAPTERS // 32,)
    assert found.root_gradients == 0


def test_quantized_units_travel_as_they_are_stored(eight_billion: Make) -> None:
    job = eight_billion(method__kind="qlora", layout__strategy="fsdp", machine__gpus=8)
    weights: Any = weight_bytes(job)
    assert gathered(job).blocks[0] == pytest.approx(weights.per_block[0] + 2 * trainable(job).adapters_per_block[0])
    assert gathered(job).root == weights.outside / 2  # stored in float32, gathered in 16 bits


def test_what_a_reduction_holds(eight_billion: Make) -> None:
    """16e6 bfloat16 gradients over 4 GPUs in float32: 64 MB are handed over, a part of the sum is 16 MB, of the gradients 8 MB."""
    over_four = {"layout__strategy": "fsdp", "machine__gpus": 4}
    fsdp2 = reduction(eight_billion(**over_four), 32e6, 2, last=5e6)
    assert fsdp2 == Reduction(whole=32e6, buffer=64e6, summed=16e6, part=8e6, lingering=5e6, piled=64e6)
    fsdp1 = reduction(eight_billion(**over_four, layout__implementation="fsdp1"), 32e6, 2, last=5e6)
    assert fsdp1 == fsdp2._replace(lingering=32e6, piled=32e6, is_flat=True)


def test_without_another_dtype_the_sum_is_the_gradient(eight_billion: Make) -> None:
    as_they_are = {"layout__strategy": "fsdp", "machine__gpus": 4, "precision__reduce": "bfloat16"}
    assert reduction(eight_billion(**as_they_are), 32e6, 1) == Reduction(whole=32e6, buffer=32e6, part=8e6, piled=32e6)
    fsdp1 = reduction(eight_billion(**as_they_are, layout__implementation="fsdp1"), 32e6, 1)
    assert (fsdp1.buffer, fsdp1.summed) == (0, 0)  # the flat gradient itself is handed over


def test_replicas_that_sum_up_besides_hold_each_sum(eight_billion: Make) -> None:
    hsdp = {"layout__strategy": "hsdp", "layout__shards": 2, "machine__gpus": 4}
    assert reduction(eight_billion(**hsdp), 32e6, 2).sum_stays == 32e6
    assert reduction(eight_billion(**hsdp, precision__reduce="bfloat16"), 32e6, 1).sum_stays == 0
    assert reduction(eight_billion(**hsdp, layout__implementation="fsdp1"), 32e6, 2).sum_stays == 0


def test_nothing_is_reduced_by_units_where_there_are_none(eight_billion: Make) -> None:
    assert reduction(eight_billion(layout__strategy="ddp", machine__gpus=4), 32e6, 2) == Reduction()


@pytest.mark.parametrize(("shards", "times"), [(8, 1), (16, 2), (6, 1.5), (64, 8)])
def test_stacked_experts_are_divided_one_by_one(eight_billion: Make, shards: int, times: float) -> None:
    """Mixtral has 8: over 16 GPUs 8 of them keep one each and the others none; over 6 some keep two."""
    over = {"model__name": "mistralai/Mixtral-8x7B-v0.1", "layout__strategy": "fsdp", "machine__gpus": shards}
    job = eight_billion(**over)
    (block,) = job.shape.blocks
    experts = 3 * 8 * 4096 * 14336 / block.parameters
    assert unit_padding(job, block) == pytest.approx(1 + experts * (times - 1))
    assert held(job).weights == pytest.approx(2 * (job.shape.parameters + 32 * 3 * 8 * 4096 * 14336 * (times - 1)) / shards)
    assert unit_padding(eight_billion(**over, layout__implementation="fsdp1"), block) == 1
