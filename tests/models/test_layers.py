"""Which layers slide, rotate and hold experts."""

from __future__ import annotations

from typing import Any

import pytest

from fullstep.errors import InputError
from fullstep.models import shape_from_config


def _windows(**config: Any) -> list[int | None]:
    shape = shape_from_config(config)
    return [shape.blocks[index].attention.window for index in shape.layers]


def _labels(**config: Any) -> list[str]:
    shape = shape_from_config(config)
    return [shape.blocks[index].label for index in shape.layers]


def test_gemma2_slides_in_every_second_layer() -> None:
    assert _windows(model_type="gemma2", num_hidden_layers=4) == [4096, None, 4096, None]
    assert _labels(model_type="gemma2", num_hidden_layers=2) == ["dense, sliding", "dense, full"]


def test_gemma3_looks_at_everything_in_every_sixth_layer() -> None:
    assert _windows(model_type="gemma3_text", num_hidden_layers=7, sliding_window=512) == [512] * 5 + [None, 512]
    assert _windows(model_type="gemma3_text", num_hidden_layers=2, sliding_window_pattern=2) == [4096, None]


def test_stated_layer_types_go_first() -> None:
    kinds = ["full_attention", "sliding_attention"]
    assert _windows(model_type="gemma3_text", num_hidden_layers=2, layer_types=kinds) == [None, 4096]


def test_mistral_slides_everywhere_or_nowhere() -> None:
    assert _windows(model_type="mistral", num_hidden_layers=2) == [4096, 4096]
    assert _windows(model_type="mistral", num_hidden_layers=2, sliding_window=None) == [None, None]
    assert len(shape_from_config({"model_type": "mistral"}).blocks) == 1


def test_qwen2_slides_above_its_lowest_layers_only_when_told() -> None:
    config = {"model_type": "qwen2", "num_hidden_layers": 3, "max_window_layers": 1, "sliding_window": 64}
    assert _windows(**config) == [None] * 3
    assert _windows(**config, use_sliding_window=True) == [None, 64, 64]


def test_gpt_neo_alternates_by_its_own_list() -> None:
    kinds = [[["global", "local"], 1], [["global"], 1]]
    assert _windows(model_type="gpt_neo", num_layers=3, attention_types=kinds) == [None, 256, None]
    with pytest.raises(InputError, match="attention_types"):
        shape_from_config({"model_type": "gpt_neo", "num_layers": 3})
    with pytest.raises(InputError, match="attention_types"):
        shape_from_config({"model_type": "gpt_neo", "attention_types": [[["global"], 10**12]]})


def test_smollm3_leaves_every_fourth_layer_unrotated() -> None:
    shape = shape_from_config({"model_type": "smollm3", "num_hidden_layers": 4})
    assert [shape.blocks[index].attention.rotary_fraction for index in shape.layers] == [1, 1, 1, 0]
    assert _labels(model_type="smollm3", num_hidden_layers=2, no_rope_layers=[0, 1]) == ["dense, unrotated", "dense"]


def test_cohere2_rotates_only_where_it_slides() -> None:
    shape = shape_from_config({"model_type": "cohere2", "num_hidden_layers": 4})
    pairs = [(shape.blocks[index].attention.window, shape.blocks[index].attention.rotary_fraction) for index in shape.layers]
    assert pairs == [(4096, 1.0)] * 3 + [(None, 0.0)]


def test_exaone4_without_windows_rotates_everywhere() -> None:
    shape = shape_from_config({"model_type": "exaone4", "num_hidden_layers": 4, "sliding_window": None})
    assert [block.attention.rotary_fraction for block in shape.blocks] == [1.0]


def test_qwen_moe_keeps_chosen_layers_dense() -> None:
    config = {"model_type": "qwen3_moe", "num_hidden_layers": 4, "decoder_sparse_step": 2, "mlp_only_layers": [1]}
    assert _labels(**config) == ["dense", "dense", "dense", "expert"]


def test_stated_kinds_of_feed_forward_layers_go_first() -> None:
    config = {"model_type": "exaone_moe", "num_hidden_layers": 2, "mlp_layer_types": ["sparse", "dense"], "sliding_window": None}
    assert _labels(**config) == ["expert", "dense"]


def test_ernie_puts_its_experts_between_two_layers() -> None:
    config = {"model_type": "ernie4_5_moe", "num_hidden_layers": 6, "moe_layer_start_index": 1, "moe_layer_end_index": 3}
    assert _labels(**config) == ["dense", "expert", "expert", "expert", "dense", "dense"]


@pytest.mark.parametrize("kinds", ["full", [], ["full_attention"], ["full_attention", "odd"], [["x"], "full_attention"]])
def test_lists_that_do_not_fit_the_layers_are_refused(kinds: Any) -> None:
    with pytest.raises(InputError, match="layer_types"):
        shape_from_config({"model_type": "gemma2", "num_hidden_layers": 2, "layer_types": kinds})


def test_ten_thousand_layers_are_no_trouble() -> None:
    shape = shape_from_config({"model_type": "gemma2", "num_hidden_layers": 10_000})
    assert len(shape.layers) == 10_000 and len(shape.blocks) == 2
