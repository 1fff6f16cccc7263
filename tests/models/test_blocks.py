"""What a block is made of: norms, projections, heads; and properties that hold for every model type."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fullstep.errors import InputError
from fullstep.models import shape_from_config, supported_model_types
from fullstep.models.architectures import ARCHITECTURES, TEXT_PARTS

COMPLETE = {"deepseek_v2": {"num_experts_per_tok": 6}, "dots1": {"n_routed_experts": 8, "num_experts_per_tok": 2}}


@pytest.mark.parametrize("model_type", supported_model_types())
def test_components_add_up_for_every_type(model_type: str) -> None:
    shape = shape_from_config({"model_type": model_type, **COMPLETE.get(model_type, {})})
    assert sum(shape.parameters_by_component.values()) == shape.parameters > shape.block_parameters > 0
    assert 0 < shape.active_parameters <= shape.parameters
    has_experts = any(block.feed_forward.experts > block.feed_forward.experts_per_token for block in shape.blocks)
    assert (shape.active_parameters < shape.parameters) == has_experts
    for block in shape.blocks:
        paths = [(linear.name, linear.role) for linear in block.linears]
        assert len(paths) == len(set(paths))
        assert block.attention.heads % block.attention.key_value_heads == 0
        assert 0 <= block.attention.rotary_fraction <= 1


def test_every_language_part_can_be_sized() -> None:
    assert set(TEXT_PARTS.values()) <= set(ARCHITECTURES)
    assert not set(TEXT_PARTS) & set(ARCHITECTURES)


def test_norms_by_place() -> None:
    def places(model_type: str) -> list[str]:
        return [norm.place for norm in shape_from_config({"model_type": model_type}).blocks[0].norms]

    assert places("llama") == ["attention_input", "feed_forward_input"]
    assert places("olmo2") == ["attention_output", "feed_forward_output", "query", "key"]
    assert places("gemma2") == ["attention_input", "attention_output", "feed_forward_input", "feed_forward_output"]
    assert places("gptj") == ["attention_input"]
    assert places("deepseek_v3") == ["attention_input", "feed_forward_input", "query_latent", "key_value_latent"]
    assert places("bitnet") == ["attention_input", "feed_forward_input", "attention_inner", "feed_forward_inner"]


def test_olmo_norms_have_no_weights() -> None:
    norms = shape_from_config({"model_type": "olmo"}).blocks[0].norms
    assert [(norm.kind, norm.parameters) for norm in norms] == [("layer", 0), ("layer", 0)]


def test_query_norms_span_one_head_or_all() -> None:
    one = shape_from_config({"model_type": "qwen3", "num_key_value_heads": 8}).blocks[0].norms[-2:]
    assert [(norm.width, norm.parameters) for norm in one] == [(128, 128), (128, 128)]
    whole = shape_from_config({"model_type": "olmo2", "num_key_value_heads": 8}).blocks[0].norms[-2:]
    assert [(norm.width, norm.parameters) for norm in whole] == [(4096, 4096), (1024, 1024)]
    each = shape_from_config({"model_type": "cohere", "num_key_value_heads": 8, "use_qk_norm": True}).blocks[0].norms[-2:]
    assert [(norm.width, norm.parameters) for norm in each] == [(128, 64 * 128), (128, 8 * 128)]


def test_fused_projections() -> None:
    roles = {linear.name: linear.role for linear in shape_from_config({"model_type": "phi3"}).blocks[0].linears}
    assert roles == {"qkv_proj": "query_key_value", "o_proj": "attention_output", "gate_up_proj": "gate_up", "down_proj": "down"}


def test_falcon_shares_one_key_head_in_its_first_generation_only() -> None:
    """tiiuae/falcon-7b states num_kv_heads: 71 and uses one; falcon-40b uses the 8 that it states."""
    first = shape_from_config({"model_type": "falcon", "num_kv_heads": 71}).blocks[0]
    assert first.attention.key_value_heads == 1 and len(first.norms) == 1
    keys = {"hidden_size": 8192, "num_hidden_layers": 60, "num_attention_heads": 128, "num_kv_heads": 8, "new_decoder_architecture": True}
    second = shape_from_config({"model_type": "falcon", **keys})
    assert second.blocks[0].attention.key_value_heads == 8 and len(second.blocks[0].norms) == 2
    assert second.parameters == 41_303_293_952


def test_deepseek_without_a_query_rank_projects_queries_at_once() -> None:
    linears = shape_from_config({"model_type": "deepseek_v3", "q_lora_rank": None}).blocks[0].linears
    assert [linear.role for linear in linears[:3]] == ["query", "key_value_down", "key_value_up"]


@pytest.mark.parametrize(
    ("config", "share"),
    [
        ({"model_type": "gpt_neox"}, 0.25),
        ({"model_type": "gpt_neox", "rotary_pct": 1.0}, 1.0),
        ({"model_type": "gptj"}, 64 / 256),
        ({"model_type": "phi", "partial_rotary_factor": 0.4}, 0.4),
        ({"model_type": "phi", "rope_parameters": {"partial_rotary_factor": 0.4}}, 0.4),
        ({"model_type": "bloom"}, 0.0),
        ({"model_type": "falcon", "alibi": True}, 0.0),
    ],
)
def test_rotary_share_of_a_head(config: dict[str, object], share: float) -> None:
    assert shape_from_config(config).blocks[0].attention.rotary_fraction == share


def test_more_experts_a_token_than_there_are_is_a_fault() -> None:
    with pytest.raises(InputError, match="more than the 8 experts"):
        shape_from_config({"model_type": "mixtral", "num_experts_per_tok": 9})


def test_learned_activations_count() -> None:
    """xIELU learns two numbers a layer."""
    with_them = shape_from_config({"model_type": "apertus"}).parameters
    assert with_them - shape_from_config({"model_type": "apertus", "hidden_act": "relu2"}).parameters == 2 * 32


@settings(max_examples=60, deadline=None)
@given(
    heads=st.integers(1, 64),
    groups=st.integers(1, 8),
    width=st.sampled_from([32, 64, 128]),
    layers=st.integers(1, 100),
    vocabulary=st.integers(1, 300_000),
    intermediate=st.integers(1, 60_000),
    tied=st.booleans(),
)
def test_llama_follows_its_formula(
    *, heads: int, groups: int, width: int, layers: int, vocabulary: int, intermediate: int, tied: bool
) -> None:
    hidden, key_value = heads * groups * width, heads * width
    shape = shape_from_config(
        {
            "model_type": "llama",
            "hidden_size": hidden,
            "num_attention_heads": heads * groups,
            "num_key_value_heads": heads,
            "num_hidden_layers": layers,
            "vocab_size": vocabulary,
            "intermediate_size": intermediate,
            "tie_word_embeddings": tied,
        }
    )
    block = 2 * hidden**2 + 2 * hidden * key_value + 3 * hidden * intermediate + 2 * hidden
    assert shape.parameters == (1 if tied else 2) * vocabulary * hidden + layers * block + hidden
