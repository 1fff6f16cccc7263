"""What the walk is told: buffers, gathered parameters, copies, offloads. Figures by hand from Llama-3.1-8B."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fullstep.job import Job, complete, worksheet_from_mapping
from fullstep.physics.memory.build_scene import retains_inputs, scene_of
from fullstep.physics.memory.optimizer import state_bytes
from fullstep.physics.memory.scene import Scene
from fullstep.physics.memory.sharding import shares, units
from fullstep.physics.memory.weights import gradient_bytes, trainable, weight_bytes

Make = Callable[..., Job]
PARAMETERS = 8_030_261_248
EMBEDDING = 128_256 * 4096
ROOT = 2 * EMBEDDING + 4096
BLOCK = (PARAMETERS - ROOT) // 32
T = 2048
WORKSPACES = 2 * 8_519_680
"""cuBLAS, two handles"""
INPUTS = 3 * 8 * T + 2 * T * 128 * 2
"""identifiers, labels, positions; cosine and sine of 128 per head in 16 bits"""


def scene(job: Job) -> Scene:
    trains, weights = trainable(job), weight_bytes(job)
    return scene_of(job, shares(job, weights, gradient_bytes(job), state_bytes(job), trains), units(job, weights, trains), trains)


def test_one_gpu_in_bfloat16(eight_billion: Make) -> None:
    found = scene(eight_billion())
    assert found.stream == T * 4096 * 2
    assert (found.weights, found.gradients, found.optimizer_states) == (2 * PARAMETERS, 2 * PARAMETERS, 4 * PARAMETERS)
    assert found.buffers == WORKSPACES + INPUTS
    assert (found.root.gathered, found.gathered_whole, found.prefetches, found.root.copies) == (0, 0, False, 0)
    assert found.step_temporaries == 2 * PARAMETERS


def test_buckets(eight_billion: Make) -> None:
    """DDP copies all gradients; DeepSpeed reduces in buckets of 5e8 elements unless told otherwise."""
    assert scene(eight_billion(layout__strategy="ddp", machine__gpus=8)).buffers == WORKSPACES + INPUTS + 2 * PARAMETERS
    zero2 = {"layout__strategy": "zero2", "machine__gpus": 8}
    assert scene(eight_billion(**zero2)).buffers == WORKSPACES + INPUTS + 2 * 500_000_000
    assert scene(eight_billion(**zero2, layout__bucket_bytes=10_000_000)).buffers == WORKSPACES + INPUTS + 10_000_000


def test_fsdp_gathers_the_root_and_reduces_in_float32(eight_billion: Make) -> None:
    found = scene(eight_billion(layout__strategy="fsdp", machine__gpus=8))
    assert (found.root.gathered, found.gathered_whole, found.prefetches) == (2 * ROOT, 0, True)
    assert (found.blocks[0].gathered, found.blocks[0].reduction.buffer, found.root.reduction.buffer) == (2 * BLOCK, 4 * BLOCK, 4 * ROOT)
    assert found.blocks[0].gradients_left == pytest.approx(2 * BLOCK / 8)


def test_resharding(eight_billion: Make) -> None:
    fsdp = {"layout__strategy": "fsdp", "machine__gpus": 8}
    kept = scene(eight_billion(**fsdp, layout__reshard_after_forward=False))
    assert (kept.gathered_whole, kept.blocks[0].gathered) == (32 * 2 * BLOCK, 0)
    assert scene(eight_billion(layout__strategy="fsdp_grad_op", machine__gpus=8)).gathered_whole == 32 * 2 * BLOCK
    part = scene(eight_billion(**fsdp, layout__reshard_after_forward=2))
    assert part.root.gathered == 2 * ROOT + 32 * 2 * BLOCK / 2


def test_zero3_keeps_a_billion_parameters_live(eight_billion: Make) -> None:
    zero3 = {"layout__strategy": "zero3", "machine__gpus": 8}
    assert scene(eight_billion(**zero3)).gathered_whole == 2 * 10**9
    assert scene(eight_billion(**zero3, layout__max_live_parameters=5)).gathered_whole == 10


def test_autocast_copies_float32_weights(eight_billion: Make) -> None:
    wide = scene(eight_billion(precision__weights="float32"))
    norms = 2 * 4096
    assert (wide.blocks[0].copies, wide.root.copies) == (2 * (BLOCK - norms), 2 * EMBEDDING)
    assert wide.caches_copies
    assert scene(eight_billion(precision__weights="float32", layout__strategy="fsdp", machine__gpus=8)).blocks[0].copies == 0


def test_autocast_leaves_stacked_experts_alone() -> None:
    """Grouped products are not on its list: only attention and router are cast."""
    config = {
        "model_type": "mixtral", "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 4,
        "num_local_experts": 8, "num_hidden_layers": 1,
    }  # fmt: skip
    mapping = {"model": {"config": config}, "precision": {"weights": "float32"}}
    stacked = scene(complete(worksheet_from_mapping(mapping, "stacked")))
    assert stacked.blocks[0].copies == 2 * (4 * 64 * 64 + 8 * 64)
    old = mapping | {"step": {"framework_version": "4.57.0"}}
    modules = scene(complete(worksheet_from_mapping(old, "modules")))
    assert modules.blocks[0].copies == 2 * (4 * 64 * 64 + 8 * 64 + 8 * 3 * 64 * 128)


def test_no_sync_keeps_whole_gradients_until_the_last_micro_batch(eight_billion: Make) -> None:
    """They pile up unreduced in the reduce dtype; at the optimizer step they are shards again."""
    fsdp = {"layout__strategy": "fsdp", "machine__gpus": 8, "batch__accumulation": 4}
    late = scene(eight_billion(**fsdp, layout__sync_every_micro_batch=False))
    assert (late.gradients, late.step_gradients) == (4 * PARAMETERS, 2 * PARAMETERS / 8)
    each = scene(eight_billion(**fsdp))
    assert (each.gradients, each.step_gradients) == (2 * PARAMETERS / 8, 2 * PARAMETERS / 8)


def test_step_in_backward_leaves_no_gradients(eight_billion: Make) -> None:
    found = scene(eight_billion(optimizer__in_backward=True))
    assert (found.gradients, found.blocks[0].gradients_left, found.root.gradients_left) == (0, 0, 0)


def test_offloads(eight_billion: Make) -> None:
    fsdp = {"layout__strategy": "fsdp", "machine__gpus": 8}
    found = scene(eight_billion(**fsdp, layout__offload_parameters=True))
    assert (found.weights, found.gradients, found.optimizer_states) == (0, 0, 0)
    assert found.offloaded_weights == 2 * PARAMETERS / 8
    assert found.step_temporaries == 0
    kept = scene(eight_billion(step__activation_offload=True, step__activation_checkpointing="full"))
    assert kept.offloaded_activations == 32 * kept.stream


def test_outputs_that_are_held(eight_billion: Make) -> None:
    assert scene(eight_billion()).root.held_outputs == 0
    assert scene(eight_billion(step__keeps_outputs=True)).root.held_outputs == 2 * T * 128_256
    assert scene(eight_billion(step__keeps_outputs=True, step__loss="fused")).root.held_outputs == 0


def test_selective_checkpointing_keeps_products_and_attention(eight_billion: Make) -> None:
    """Outputs of the seven products, attention's output and log-sum-exp, the block's input."""
    found = scene(eight_billion(step__activation_checkpointing="selective"))
    outputs = 4096 + 2 * 1024 + 4096 + 2 * 14336 + 4096
    assert found.blocks[0].selective_kept == T * (2 * outputs + 32 * (128 * 2 + 4) + 2 * 4096)


def test_layer_split_walks_the_last_gpus_blocks(eight_billion: Make) -> None:
    assert len(scene(eight_billion(layout__strategy="layer_split", machine__gpus=3)).shape.layers) == 11


def test_fsdp1_holds_inputs_of_frozen_units(eight_billion: Make) -> None:
    held = {
        "method__kind": "lora", "layout__strategy": "fsdp", "layout__implementation": "fsdp1", "machine__gpus": 2,
        "step__activation_checkpointing": "full", "step__framework_version": "4.48.0",
    }  # fmt: skip
    assert retains_inputs(eight_billion(**held))
    assert not retains_inputs(eight_billion(**held | {"method__kind": "full"}))
    assert not retains_inputs(eight_billion(**held | {"step__framework_version": "5.0.0"}))  # not reentrant
    assert not retains_inputs(eight_billion(**held | {"layout__implementation": "fsdp2"}))
