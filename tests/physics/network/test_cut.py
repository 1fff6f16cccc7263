"""Tensor, pipeline, context and expert parallelism, and layers on several GPUs: arithmetic from their papers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fullstep.job import Job, complete, worksheet_from_mapping
from fullstep.physics.network.collective import Collective, sent_bytes_per_gpu_per_step
from fullstep.physics.network.traffic import step_collectives

Make = Callable[..., Job]
STREAM = 4096 * 4096 * 2
"""one row of 4,096 tokens, 4,096 wide, bfloat16"""
BASE: dict[str, Any] = {"machine__gpu": "H100-SXM", "machine__gpus": 8, "batch__sequence_tokens": 4096, "layout__strategy": "fsdp"}


def of(job: Job, what: str) -> list[Collective]:
    return [one for one in step_collectives(job) if one.what.startswith(what)]


def sent(collectives: list[Collective]) -> float:
    return sum(sent_bytes_per_gpu_per_step(collectives))


def degrees(**degree: int) -> dict[str, int]:
    product = degree.get("tensor", 1) * degree.get("pipeline", 1) * degree.get("context", 1)
    ranks = 8 // product
    return {"layout__data_parallel": ranks, "layout__shards": ranks, **{f"layout__{name}": value for name, value in degree.items()}}


@pytest.mark.parametrize(
    ("keys", "sums"),
    [
        ({}, 7),  # two forward, one per product that reads the input backward
        ({"step__framework": "torchtitan"}, 4),  # a gather and a scatter are one sum
        ({"step__framework": "megatron"}, 4),
        ({"step__framework": "megatron", "step__activation_checkpointing": "full"}, 6),
        ({"step__activation_checkpointing": "full"}, 8),  # torch stops before a block's last sum
    ],
)
def test_sums_of_a_block_among_two_tensor_ranks(eight_billion: Make, keys: dict[str, Any], sums: int) -> None:
    """Megatron-LM, section 3: 8 (t - 1) / t * b s h * bytes per block and micro-batch for four sums."""
    job = eight_billion(**BASE, **degrees(tensor=2), **keys)
    assert sent(of(job, "sum over tensor")) == pytest.approx(32 * sums * 2 * 1 / 2 * STREAM)


def test_tensor_ranks_are_neighbours_and_share_the_weights(eight_billion: Make) -> None:
    job = eight_billion(**BASE, **degrees(tensor=2), machine__nodes=1)
    block = next(one for one in step_collectives(job) if one.what == "gather a block")
    assert (block.ranks, block.nodes) == (4, 1)
    assert block.payload_bytes == pytest.approx(2 * ((218_112_000 - 2 * 4096) / 2 + 2 * 4096))
    assert {(one.ranks, one.ranks_per_node) for one in of(job, "sum")} == {(2, 2)}


def test_a_middle_stage_sends_both_ways(eight_billion: Make) -> None:
    job = eight_billion(**BASE, **degrees(pipeline=4), batch__accumulation=8)
    sends = of(job, "send")
    assert [(one.phase, one.times, one.payload_bytes) for one in sends] == [("forward", 8, STREAM), ("backward", 8, STREAM)]
    blocks = [one for one in step_collectives(job) if one.what == "reduce gradients of a block"]
    assert sum(one.times for one in blocks) == 8 * 8  # eight blocks, eight micro-batches


KEYS = 4096 * 2 * 1024 * 2
"""keys and values that a rank of 4 has of a block: 8 heads of each, 128 wide, bfloat16; a row of 16,384 tokens"""
LONG: dict[str, Any] = {**BASE, "batch__sequence_tokens": 16_384}


def test_megatron_keys_go_round_the_ring_and_twice_as_much_comes_back(eight_billion: Make) -> None:
    """Ring attention, section 3: c - 1 messages of a rank's keys and values per block, and their gradients beside them."""
    ring = of(eight_billion(**LONG, step__framework="megatron", **degrees(context=4)), "hand")
    forward = 32 * 3 * KEYS
    assert sum(one.payload_bytes * one.times for one in ring if one.phase == "forward") == pytest.approx(forward)
    assert sum(one.payload_bytes * one.times for one in ring if one.phase == "backward") == pytest.approx(2 * forward)


def test_torch_gathers_keys_and_hands_their_gradients_round_in_float32(eight_billion: Make) -> None:
    """_AllGatherRotater, which gathers once a pass; the gradients' rotater is all-to-all and passes all c parts on."""
    job = eight_billion(**LONG, **degrees(context=4))
    gathers, handed = of(job, "gather keys"), of(job, "hand gradients")
    assert [(one.kind, one.phase, one.payload_bytes, one.times) for one in gathers] == [
        ("all_gather", "forward", 4 * KEYS, 32), ("all_gather", "backward", 4 * KEYS, 32),
    ]  # fmt: skip
    assert [(one.phase, one.payload_bytes, one.times) for one in handed] == [("backward", 2 * KEYS, 32 * 4)]


def test_keys_that_were_copied_to_all_heads_travel_so(eight_billion: Make) -> None:
    """torchtitan calls repeat_kv before sdpa, around which torch's context parallelism lies: 32 heads instead of 8."""
    job = eight_billion(**LONG, step__framework="torchtitan", **degrees(context=4))
    assert [one.payload_bytes for one in of(job, "gather keys")] == [4 * 4 * KEYS, 4 * 4 * KEYS]


def test_fewer_heads_of_keys_than_ranks_travel_as_one_for_each() -> None:
    """Ulysses on 8 ranks: a rank attends with a whole head of keys to all tokens, of which a model with 2 has a copy on each."""
    def exchanged(heads: int) -> float:
        config = {"model_type": "llama", "num_attention_heads": 32, "num_key_value_heads": heads, "hidden_size": 4096}
        mapping = {
            "model": {"config": config}, "batch": {"sequence_tokens": 32_768}, "step": {"framework": "deepspeed"},
            "layout": {"strategy": "zero3", "context": 8}, "machine": {"gpu": "H100-SXM", "gpus": 8},
        }  # fmt: skip
        return of(complete(worksheet_from_mapping(mapping, "ulysses")), "exchange heads")[0].payload_bytes

    assert exchanged(2) == exchanged(8) == 4096 * 2 * (32 + 8) * 2 * 128 < exchanged(16)


def test_an_embedding_that_is_the_head_sums_its_gradients_between_first_and_last_stage() -> None:
    """Qwen2.5-0.5B: 136,134,656 elements, in float32 as Megatron keeps them; _allreduce_word_embedding_grads."""
    mapping = {
        "model": {"name": "Qwen/Qwen2.5-0.5B"}, "step": {"framework": "megatron"}, "precision": {"gradients": "float32"},
        "layout": {"strategy": "zero1", "pipeline": 2}, "machine": {"gpu": "H100-SXM", "gpus": 2},
    }  # fmt: skip
    (found,) = of(complete(worksheet_from_mapping(mapping, "tied")), "sum gradients")
    assert (found.kind, found.payload_bytes, found.ranks, found.times) == ("all_reduce", 136_134_656 * 4, 2, 1)
    assert found.taking_part == 1 and sent([found]) == 136_134_656 * 4


def test_blocks_are_shared_out_over_data_and_context_ranks(eight_billion: Make) -> None:
    collectives = step_collectives(eight_billion(**BASE, **degrees(context=4)))
    assert next(one for one in collectives if one.what == "gather a block").ranks == 8


def test_ulysses_exchanges_four_tensors_each_way(eight_billion: Make) -> None:
    """DeepSpeed Ulysses, section 3.2: query and output of 4,096, key and value of 1,024, each s / c tokens."""
    job = eight_billion(**{**BASE, "layout__strategy": "zero3"}, **degrees(context=4))
    forward = [one for one in of(job, "exchange") if one.phase == "forward"]
    assert sent(forward) == pytest.approx(32 * 3 / 4 * 1024 * (2 * 4096 + 2 * 1024) * 2)


def test_experts_get_tokens_and_are_shared_by_fewer(mixture: Make) -> None:
    """Qwen3-30B-A3B: 48 blocks, 128 experts, 8 a token, 2,048 wide; 8 ranks hold 16 experts each."""
    keys: dict[str, Any] = {**BASE, "layout__data_parallel": 8, "layout__shards": 8, "layout__expert": 8, "step__framework": "torchtitan"}
    job = mixture(**keys)
    call = 7 / 8 * 4096 * 8 * 2048 * 2
    assert sent(of(job, "send tokens")) == pytest.approx(48 * 4 * call)
    assert not of(job, "gather experts")  # one rank each: nothing to gather
    assert not of(job, "reduce gradients of experts")


def test_layers_on_four_gpus_copy_the_stream_three_times_each_way(eight_billion: Make) -> None:
    job = eight_billion(layout__strategy="layer_split", machine__gpu="RTX3090", machine__gpus=4, batch__sequence_tokens=4096)
    assert [(one.times, one.payload_bytes) for one in step_collectives(job)] == [(3, STREAM), (3, STREAM)]
