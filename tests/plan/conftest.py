"""Worksheets to vary, and the estimator made by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from fullstep.job import Worksheet, worksheet_from_mapping
from fullstep.plan.trial import Size

from .by_hand import by_hand

CONFIG = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": False, "max_position_embeddings": 8192,
}  # fmt: skip


@pytest.fixture
def size() -> Size:
    return by_hand()


@pytest.fixture
def sheet() -> Callable[..., Worksheet]:
    """A worksheet of an 8B in float32 on H100s (79 GiB usable), with sections given as keywords laid over it; None: left out."""

    def make(**sections: Mapping[str, Any]) -> Worksheet:
        base: dict[str, dict[str, Any]] = {
            "model": {"name": "meta-llama/Llama-3.1-8B", "config": CONFIG},
            "precision": {"weights": "float32"},
            "batch": {"sequence_tokens": 4096},
            "machine": {"gpu": "H100-SXM", "gpus": 8},
        }
        for name, values in sections.items():
            merged = {**base.get(name, {}), **values}
            base[name] = {key: value for key, value in merged.items() if value is not None}
        return worksheet_from_mapping(base)

    return make
