"""Jobs whose checkpoints are sized."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fullstep.job import Job, complete, worksheet_from_mapping


@pytest.fixture(scope="session")
def job() -> Callable[..., Job]:
    """Llama-3.1-8B in float32 on eight H100, changed by whole sections."""

    def make(**sections: Any) -> Job:
        mapping = {
            "model": {"name": "meta-llama/Llama-3.1-8B"}, "precision": {"weights": "float32"},
            "machine": {"gpu": "H100-SXM", "gpus": 8, "storage_write_gb_s": 1}, **sections,
        }  # fmt: skip
        return complete(worksheet_from_mapping(mapping, "saves"))

    return make


def _llama(hidden: int, intermediate: int, layers: int, heads: int, vocabulary: int) -> dict[str, Any]:
    return {
        "config": {
            "model_type": "llama", "hidden_size": hidden, "intermediate_size": intermediate, "num_hidden_layers": layers,
            "num_attention_heads": heads, "vocab_size": vocabulary, "tie_word_embeddings": False,
        }
    }  # fmt: skip


@pytest.fixture(scope="session")
def small() -> dict[str, dict[str, Any]]:
    """Llamas whose checkpoints were measured, under millions of parameters."""
    return {"0.6": _llama(128, 384, 2, 4, 752), "27": _llama(512, 1376, 6, 8, 8000), "106": _llama(768, 2048, 8, 12, 32_000)}
