"""What one rank has of a model, against arithmetic and against what the plans of transformers say."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fullstep.job import Job
from fullstep.models import ModelShape, bundled_config, shape_from_config
from fullstep.physics.memory.choices import loss_habit
from fullstep.physics.memory.cut import cut_block, cut_shape, gathered_roles, has_head, stage_shape


def shape_of(name: str) -> ModelShape:
    return shape_from_config(bundled_config(name))


@pytest.fixture(scope="module")
def llama() -> ModelShape:
    return shape_of("meta-llama/Llama-3.1-8B")


def test_all_but_norms_is_divided_among_tensor_ranks(llama: ModelShape) -> None:
    """65 norms of 4,096: (8,030,261,248 - 266,240) / 4 + 266,240."""
    part = cut_shape(llama, 4, 1, "megatron")
    assert part.parameters == (8_030_261_248 - 266_240) // 4 + 266_240
    attention = part.blocks[0].attention
    assert (attention.heads, attention.key_value_heads, attention.head_dim) == (8, 2, 128)
    assert part.vocabulary == 128_256 // 4
    assert part.hidden == 4096


def test_one_rank_has_all_of_it(llama: ModelShape) -> None:
    assert cut_shape(llama, 1, 1, "megatron") is llama


def test_a_vocabulary_that_does_not_divide_is_rounded_up() -> None:
    gpt2 = shape_of("openai-community/gpt2")  # 50,257 words of 768
    part = cut_shape(gpt2, 2, 1, "megatron")
    assert (part.vocabulary, part.embedding_parameters) == (25_129, 25_129 * 768)


def test_experts_are_dealt_out_and_the_rest_is_whole() -> None:
    """Mixtral-8x7B: 32 blocks of 8 experts of 3 * 4096 * 14336; a router that knows all eight."""
    whole = shape_of("mistralai/Mixtral-8x7B-v0.1")
    part = cut_shape(whole, 1, 4, "megatron")
    assert whole.parameters - part.parameters == 32 * 6 * 3 * 4096 * 14336
    roles = {linear.role: linear for linear in part.blocks[0].linears}
    assert roles["router"].outputs == 8
    assert part.blocks[0].feed_forward.experts == 2


def test_classes_of_transformers_leave_latent_attention_whole() -> None:
    whole = shape_from_config({"model_type": "deepseek_v3"})
    block = whole.blocks[-1]
    assert cut_block(block, 4, 1, "transformers").attention == block.attention
    assert cut_block(block, 4, 1, "megatron").attention.heads == block.attention.heads // 4


def test_where_norms_span_all_heads_these_are_gathered() -> None:
    olmo2 = shape_from_config({"model_type": "olmo2"}).blocks[0]
    assert gathered_roles(olmo2, "transformers") == {"query", "key", "value", "query_key_value", "attention_output"}
    assert gathered_roles(olmo2, "megatron") == frozenset()
    part = cut_block(olmo2, 4, 1, "transformers")
    assert part.attention == olmo2.attention
    assert part.parameters < olmo2.parameters / 3.9


def test_stages_add_up_to_the_model(llama: ModelShape) -> None:
    layers = (8, 8, 8, 8)
    stages = [stage_shape(llama, layers, stage) for stage in range(4)]
    assert sum(stage.parameters for stage in stages) == llama.parameters
    assert [has_head(stage) for stage in stages] == [False, False, False, True]
    assert [stage.embedding_parameters > 0 for stage in stages] == [True, False, False, False]


def test_the_last_stage_has_a_copy_of_a_tied_embedding() -> None:
    tied = shape_of("openai-community/gpt2")
    stages = [stage_shape(tied, (6, 6), stage) for stage in range(2)]
    assert sum(stage.parameters for stage in stages) == tied.parameters + tied.embedding_parameters


def test_the_loss_takes_whole_logits_under_the_plans_of_transformers(eight_billion: Callable[..., Job]) -> None:
    ranks = {"machine__gpus": 2, "layout__strategy": "single", "layout__tensor": 2}
    assert loss_habit(eight_billion(**ranks)).gathered_from == 2
    assert loss_habit(eight_billion(**ranks, step__framework="torchtitan")).gathered_from == 1
