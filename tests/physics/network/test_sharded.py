"""FSDP, HSDP and ZeRO-3 by hand on Llama-3.1-8B."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from fullstep.job import Job
from fullstep.physics.network.collective import Collective, sent_bytes_per_gpu_per_step
from fullstep.physics.network.traffic import step_collectives

Make = Callable[..., Job]
PARAMETERS = 8_030_261_248
EMBEDDING = 128_256 * 4096
ROOT = 2 * EMBEDDING + 4096
BLOCK = (PARAMETERS - ROOT) // 32
TWO_NODES = {"machine__gpu": "H100-SXM", "machine__gpus": 8, "machine__nodes": 2}


def node_bytes(job: Job) -> float:
    return sent_bytes_per_gpu_per_step(step_collectives(job)).between_nodes * job.machine.gpus


def named(job: Job, start: str) -> list[Collective]:
    return [one for one in step_collectives(job) if one.what.startswith(start)]


def bytes_of(collectives: Iterable[Collective]) -> float:
    return sum(one.payload_bytes * one.times for one in collectives)


@pytest.mark.parametrize(
    ("framework", "not_gathered_again"),
    [
        ("transformers", EMBEDDING + 4096),  # accelerate: the head and norm stay; the embedding is a unit of its own
        ("torchtitan", EMBEDDING + 4096),
        ("torchtune", ROOT),  # the root stays
    ],
)
def test_two_nodes_of_eight_send_60_gb_less_what_stays(eight_billion: Make, framework: str, not_gathered_again: int) -> None:
    """15 / 16 * 8.03e9 * (2 + 2 + 4) = 60.2 GB per node and step if everything is gathered twice."""
    everything = 15 / 16 * PARAMETERS * (2 + 2 + 4)
    assert everything == pytest.approx(60.2e9, rel=1e-3)
    job = eight_billion(layout__strategy="fsdp", step__framework=framework, **TWO_NODES)
    assert node_bytes(job) == pytest.approx(everything - 15 / 16 * 2 * not_gathered_again, rel=1e-9)


@pytest.mark.parametrize(
    ("keys", "per_parameter"),
    [
        ({"layout__reshard_after_forward": False}, 2 + 4),
        ({"layout__strategy": "fsdp_grad_op"}, 2 + 4),
        ({"layout__reshard_after_forward": False, "precision__reduce": "bfloat16"}, 2 + 2),
        ({"layout__reshard_after_forward": 8}, 2 + 4),  # gathered again inside the node
        ({"layout__reshard_after_forward": False, "batch__accumulation": 4}, 4 * (2 + 4)),
        ({"layout__reshard_after_forward": False, "batch__accumulation": 4, "layout__sync_every_micro_batch": False}, 4 * 2 + 4),
        ({"layout__reshard_after_forward": False, "precision__weights": "float32"}, 2 + 4),  # gathered in the compute dtype
        ({"layout__reshard_after_forward": False, "precision__compute": "fp8"}, 2 + 4),  # fp8 gathers bfloat16
    ],
)
def test_bytes_per_parameter_between_two_nodes(eight_billion: Make, keys: dict[str, object], per_parameter: float) -> None:
    job = eight_billion(**{"layout__strategy": "fsdp", **TWO_NODES, **keys})
    assert node_bytes(job) == pytest.approx(15 / 16 * PARAMETERS * per_parameter, rel=1e-9)


def test_hsdp_over_two_nodes_sends_the_gradients_once(eight_billion: Make) -> None:
    """2 (k - 1) / k * P * 4 = 32.1 GB."""
    assert node_bytes(eight_billion(layout__strategy="hsdp", **TWO_NODES)) == pytest.approx(PARAMETERS * 4, rel=1e-9)


def test_the_first_gather_and_the_last_reduction_have_nothing_beside_them(eight_billion: Make) -> None:
    exposed = [one for one in step_collectives(eight_billion(layout__strategy="fsdp", **TWO_NODES)) if not one.overlaps]
    assert [(one.what, one.phase, one.times) for one in exposed] == [
        ("gather the embedding", "forward", 1),
        ("reduce gradients of the embedding", "backward", 1),
        ("gather a block", "forward", 1),
        ("reduce gradients of a block", "backward", 1),
    ]


def test_accelerates_fsdp1_hides_nothing_in_backward(eight_billion: Make) -> None:
    job = eight_billion(layout__strategy="fsdp", layout__implementation="fsdp1", **TWO_NODES)
    assert not any(one.overlaps for one in step_collectives(job) if one.phase == "backward")


def test_reentrant_checkpointing_gathers_a_third_time(eight_billion: Make) -> None:
    keys = {"layout__strategy": "fsdp", "layout__implementation": "fsdp1", "step__activation_checkpointing": "full", **TWO_NODES}
    new = eight_billion(step__framework_version="5.0", **keys)
    old = eight_billion(step__framework_version="4.45", **keys)
    assert bytes_of(step_collectives(old)) - bytes_of(step_collectives(new)) == pytest.approx(32 * BLOCK * 2)


def test_adapters_are_reduced_and_everything_is_gathered(eight_billion: Make) -> None:
    """rank 16 on all linears: 41,943,040 elements, reduced in float32; the base is gathered with them, both in bfloat16."""
    job = eight_billion(method__kind="lora", method__targets="all-linear", layout__strategy="fsdp", **TWO_NODES)
    assert bytes_of(named(job, "reduce")) == pytest.approx(41_943_040 * 4)
    gathered = bytes_of(one for one in named(job, "gather") if one.phase == "forward")
    assert gathered == pytest.approx(2 * (PARAMETERS + 41_943_040))


def test_four_bit_weights_travel_packed_and_without_their_constants(eight_billion: Make) -> None:
    """Half a byte per weight of the linears; norms float32 beside it; adapters in bfloat16."""
    job = eight_billion(method__kind="qlora", method__targets="all-linear", layout__strategy="fsdp", **TWO_NODES)
    block = [one for one in named(job, "gather a block") if one.phase == "forward"]
    linears = BLOCK - 2 * 4096
    assert bytes_of(block) == pytest.approx(32 * (linears / 2 + 2 * 4096 * 4) + 41_943_040 * 2)
    assert not [one for one in named(job, "gather the embedding") if one.phase == "backward"]  # frozen: backward does not reach it


def test_zero3_keeps_a_quantized_base_and_what_backward_needs_soon(eight_billion: Make, small: Make) -> None:
    quantized = eight_billion(method__kind="qlora", layout__strategy="zero3", **TWO_NODES)
    assert bytes_of(named(quantized, "gather")) < 0.5e9
    again = named(eight_billion(layout__strategy="zero3", **TWO_NODES), "gather a block again")
    assert [one.times for one in again] == [32]  # 525 M of head: twice that is beyond 10^9 elements
    assert named(small(layout__strategy="zero3", machine__gpus=2), "gather a block again") == []  # 27 M in all


def test_replicated_adapters_are_all_reduced(eight_billion: Make) -> None:
    job = eight_billion(method__kind="qlora", layout__strategy="fsdp", step__framework="fms_acceleration", **TWO_NODES)
    assert {one.kind for one in named(job, "reduce")} == {"all_reduce"}
