"""Layouts of many GPUs on a fake process group: what one rank holds, by hand."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.real_classes
WIDTH, WORDS, INNER, KEYS, BLOCKS = 256, 8192, 512, 128, 2
SMALL = {
    "model_type": "llama", "hidden_size": WIDTH, "intermediate_size": INNER, "num_hidden_layers": BLOCKS, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": WORDS, "tie_word_embeddings": False,
}  # fmt: skip
BLOCKS_ALONE = {**SMALL, "vocab_size": 64}
"""next to nothing lies outside of them"""
CUT = 2 * WORDS * WIDTH + BLOCKS * (2 * WIDTH * WIDTH + 2 * KEYS * WIDTH + 3 * INNER * WIDTH)
"""elements of all matrices"""
NORMS = (2 * BLOCKS + 1) * WIDTH
ALL = CUT + NORMS
ROUNDING = 64 * 1024
"""norms' shards take 512 bytes each"""


def sheet(gpus: int, layout: dict[str, Any], **sections: dict[str, Any]) -> dict[str, Any]:
    machine = {"gpu": "H100-SXM", "gpus": gpus}
    return {"model": {"config": SMALL}, "batch": {"sequence_tokens": 128}, "machine": machine, "layout": layout, **sections}


def test_ddp_has_gradients_and_the_buckets_they_are_reduced_in(traced: Any) -> None:
    found = traced(sheet(8, {"strategy": "ddp"}, precision={"weights": "float32"}, batch={"sequence_tokens": 128, "accumulation": 2}))
    at = {instant.at: instant.holdings for instant in found.instants}
    size = 4 * ALL
    workspaces, inputs = 2 * 32 * 2**20, 2**16
    for instant in found.instants:  # buckets stay
        assert 0 <= instant.holdings.buffers - size - workspaces < ROUNDING + inputs
    assert at["forward"].gradients == 0  # they went after the last step
    assert 0 <= at["second_forward"].gradients - size < ROUNDING  # without a reduction between micro-batches
    assert 0 <= at["optimizer_step"].gradients - size < ROUNDING
    states = at["optimizer_step"].optimizer_states
    assert 0 <= at["optimizer_step"].weights + at["optimizer_step"].gradients + states - 4 * size < 2 * ROUNDING


def test_offloaded_shards_leave_nothing_of_the_state_on_the_gpu(traced: Any) -> None:
    found = traced(sheet(2, {"strategy": "fsdp", "offload_parameters": True}))
    for instant in found.instants:
        assert instant.holdings.weights == 0
        assert instant.holdings.optimizer_states == 0
    step = next(instant for instant in found.instants if instant.at == "optimizer_step")
    assert step.allocated_bytes - step.holdings.buffers < ROUNDING  # it is made on the host
    gathered = next(instant.holdings.gathered_parameters for instant in found.instants if instant.at == "loss")
    edges, block = 2 * WORDS * WIDTH + WIDTH, (CUT - 2 * WORDS * WIDTH) // BLOCKS + 2 * WIDTH
    assert 0 <= gathered - 2 * (edges + block) < ROUNDING  # the edges, and the last block's buffer until the next gather
    shard = 2 * ALL // 2
    assert 0 <= found.host_bytes - 5 * shard < ROUNDING  # weights, gradients, two states, and the step's square roots


def test_tensor_parallel_cuts_matrices_and_embeddings_by_the_plan_of_the_class(traced: Any) -> None:
    found = traced(sheet(2, {"strategy": "fsdp", "tensor": 2}, batch={"sequence_tokens": 128}))
    at = {instant.at: instant.holdings for instant in found.instants}
    assert at["optimizer_step"].weights == 2 * (CUT // 2 + NORMS)
    assert at["optimizer_step"].optimizer_states == 2 * at["optimizer_step"].weights


def test_tensor_parallel_inside_fsdp(traced: Any) -> None:
    found = traced(sheet(4, {"strategy": "fsdp", "tensor": 2}))
    at = {instant.at: instant.holdings for instant in found.instants}
    assert 0 <= at["optimizer_step"].weights - 2 * (CUT // 4 + NORMS // 2) < ROUNDING


@pytest.mark.parametrize(
    ("found", "where", "why"),
    [
        (sheet(2, {"strategy": "zero3"}), "layout.strategy", "zero3"),
        (sheet(2, {"strategy": "fsdp", "tensor": 2, "offload_parameters": True}), "layout.offload_parameters", "FSDP2 alone"),
        (sheet(1, {"offload_optimizer": True}, step={"framework": "torchtune"}), "layout.offload_optimizer", "together"),
        (sheet(2, {"strategy": "fsdp", "tensor": 2}, method={"kind": "lora"}), "layout.tensor", "lora"),
        (sheet(2, {"strategy": "fsdp", "tensor": 2}, step={"loss": "fused"}), "step.loss", "cut"),
    ],
)
def test_what_torch_does_not_do_is_refused_by_name(ask: Any, found: dict[str, Any], where: str, why: str) -> None:
    faults = ask(found)["unsupported"]
    assert where in [fault["where"] for fault in faults]
    assert any(why in fault["found"] for fault in faults)


def test_a_class_without_a_plan_is_refused(ask: Any) -> None:
    config = {"model_type": "gpt2", "n_layer": 2, "n_head": 4, "n_embd": 128, "vocab_size": 1024}
    answer = ask({**sheet(2, {"strategy": "fsdp", "tensor": 2}), "model": {"config": config}})
    assert "GPT2LMHeadModel has no plan" in answer["unsupported"][0]["found"]


def test_fsdp1_holds_the_inputs_of_recomputed_frozen_units_and_their_gradients_until_backward_ends(traced: Any) -> None:
    """Where the loop recomputes whole units, as in transformers before 4.53: its hook on a unit's input keeps the node of that input."""
    blocks, tokens = 6, 1024
    config = {**SMALL, "num_hidden_layers": blocks, "vocab_size": 256}
    ends = []
    for version in ("4.50", "5"):
        found = traced(
            sheet(
                2, {"strategy": "fsdp", "implementation": "fsdp1"},
                model={"config": config}, batch={"sequence_tokens": tokens}, method={"kind": "lora"},
                step={"activation_checkpointing": "full", "framework": "transformers", "framework_version": version},
                precision={"autocast": False},
            )
        )  # fmt: skip
        ends.append({m.block: m.allocated_end_bytes for m in found.timeline if m.phase == "backward" and m.block is not None})
    held = 2 * 2 * tokens * WIDTH  # input and gradient of one unit
    old, new = (end[1] - end[4] for end in ends)
    assert abs(old - new - 3 * held) < ROUNDING


def test_fsdp1_that_does_not_reshard_has_all_blocks_put_together_at_the_loss(traced: Any) -> None:
    def gathered(strategy: str) -> float:
        found = traced(sheet(2, {"strategy": strategy, "implementation": "fsdp1"}))
        return next(instant.holdings.gathered_parameters for instant in found.instants if instant.at == "loss")

    blocks = 2 * (CUT - 2 * WORDS * WIDTH + 2 * BLOCKS * WIDTH)  # in bfloat16
    assert abs(gathered("fsdp_grad_op") - gathered("fsdp") - blocks) < ROUNDING


def test_fsdp1_gathers_the_next_block_ahead_where_it_is_told_so(traced: Any) -> None:
    """accelerate's plugin leaves backward_prefetch off. Two blocks at once are a block more."""
    def gathered(units: int) -> float:
        found = traced(sheet(2, {"strategy": "fsdp", "implementation": "fsdp1", "prefetch_units": units}, model={"config": BLOCKS_ALONE}))
        return max(instant.holdings.gathered_parameters for instant in found.instants if instant.at == "backward")

    block = 2 * ((CUT - 2 * WORDS * WIDTH) / BLOCKS + 2 * WIDTH)
    assert abs(gathered(1) - gathered(0) - block) < ROUNDING


def test_a_plan_that_names_a_tied_parameter_is_refused(ask: Any) -> None:
    config = {**SMALL, "model_type": "qwen3", "tie_word_embeddings": True}
    answer = ask({**sheet(2, {"strategy": "fsdp", "tensor": 2}), "model": {"config": config}})
    assert "lm_head.weight, which is tied" in answer["unsupported"][0]["found"]


def test_two_dtypes_in_one_unit_are_refused_by_their_keys(ask: Any) -> None:
    """peft keeps a copy of a module that trains beside the adapter, in 16 bits, in the unit of float32 adapters."""
    found = ask(sheet(2, {"strategy": "fsdp"}, method={"kind": "lora", "train_modules": ["up_proj"]}))
    assert found["unsupported"][0]["where"] == "precision.adapters"


def test_two_dtypes_in_a_flat_parameter_are_refused_by_their_key(ask: Any) -> None:
    """Norms in float32 beside packed weights that pass for 16 bits: FSDP1 flattens a block as one."""
    layout = {"strategy": "fsdp", "implementation": "fsdp1"}
    found = ask(sheet(2, layout, method={"kind": "qlora", "upcast_unquantized": True}))
    assert found["unsupported"][0]["where"] == "method.upcast_unquantized"
