"""A model with fewer blocks is the same one otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from fullstep.errors import InputError
from fullstep.models import model_config, shape_from_config
from fullstep.models.shorten import shortened_config


@pytest.mark.parametrize("name", ["meta-llama/Llama-3.1-8B", "gpt2", "google/gemma-2-2b", "Qwen/Qwen3-30B-A3B"])
def test_blocks_are_left_out_and_nothing_else(name: str) -> None:
    """What a block more brings is the same from two to three as from three to four, and what is outside stays."""
    config, _ = model_config({"name": name})
    counts = [shape_from_config(shortened_config(config, layers)[0]).parameters for layers in (2, 4, 6)]
    whole = shortened_config(config, 2)[1]
    assert counts[1] - counts[0] == counts[2] - counts[1]
    assert shape_from_config(config).parameters == counts[0] + (whole - 2) // 2 * (counts[1] - counts[0])


def test_lists_with_an_entry_for_each_block_are_cut() -> None:
    config = {"model_type": "gemma3", "text_config": {"num_hidden_layers": 4, "layer_types": ["a", "b", "a", "b"], "other": [1, 2]}}
    found, whole = shortened_config(config, 3)
    assert whole == 4
    assert found == {"model_type": "gemma3", "text_config": {"num_hidden_layers": 3, "layer_types": ["a", "b", "a"], "other": [1, 2]}}
    assert config["text_config"]["num_hidden_layers"] == 4  # type: ignore[index]


@pytest.mark.parametrize(
    ("config", "layers", "message"),
    [
        ({"num_hidden_layers": 4}, 0, "found 0; allowed: 1 to 4"), ({"num_hidden_layers": 4}, 5, "found 5; allowed: 1 to 4"),
        ({"model_type": "llama"}, 2, "does not state how many blocks"),
    ],
)  # fmt: skip
def test_what_cannot_be_cut_is_refused(config: dict[str, Any], layers: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        shortened_config(config, layers)
