"""Buffers, gradients until the step and temporaries of the step, by hand for Llama-3.1-8B."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fullstep.hardware import device_overheads
from fullstep.job import Job
from fullstep.physics.memory.besides import behind_embedding_gradient, buffer_bytes, float32_gradients
from fullstep.physics.memory.rank import ranks_of
from fullstep.physics.memory.sharding import Shares
from fullstep.physics.memory.weights import trainable

Make = Callable[..., Job]
EMBEDDING = 128_256 * 4096
HELD = Shares(weights=0, gradients=1000, optimizer_states=0, trained=0)


def test_an_embedding_cut_by_words_leaves_its_whole_gradient(eight_billion: Make) -> None:
    """Of 4 ranks each has a quarter of the words; three quarters lie behind the view. FSDP copies its shards out."""
    ranks = {"layout__tensor": 4, "machine__gpus": 4}
    (alone,) = ranks_of(eight_billion(**ranks, layout__strategy="single"))
    assert behind_embedding_gradient(alone.job) == 2 * EMBEDDING * 3 / 4
    (sharded,) = ranks_of(eight_billion(**ranks | {"machine__gpus": 8}))
    assert behind_embedding_gradient(sharded.job) == 0
    (megatron,) = ranks_of(eight_billion(**ranks, layout__strategy="single", step__framework="megatron"))
    assert behind_embedding_gradient(megatron.job) == 0


def test_buckets_of_reductions(eight_billion: Make) -> None:
    """DDP's are copies of all gradients, DeepSpeed's hold half a billion elements, Megatron's are views of its gradient buffers."""
    base = device_overheads(None).cublas_workspace_bytes + 24 * 2048 + 2 * 2048 * 128 * 2

    def size(strategy: str, **keys: str) -> float:
        job = eight_billion(machine__gpus=2, layout__strategy=strategy, method__kind="lora", **keys)
        return buffer_bytes(job, HELD, trainable(job))

    assert size("ddp") == base + 1000
    assert size("zero1") == base + min(500_000_000, trainable(eight_billion(method__kind="lora")).total) * 2
    assert size("zero1", step__framework="megatron", layout__implementation="megatron") == base


def test_deepspeed_steps_on_float32_gradients(eight_billion: Make) -> None:
    job = eight_billion(machine__gpus=8, layout__strategy="zero1")
    assert float32_gradients(job, trainable(job)) == pytest.approx(4 * 8_030_261_248 / 8)
    assert float32_gradients(eight_billion(machine__gpus=8), trainable(job)) == 0
