"""Jobs of Llama-3.1-8B and of a small llama whose traffic was counted, with any degree set by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fullstep.job import Job, complete, worksheet_from_mapping

DEGREES = ("tensor", "pipeline", "context", "expert")
SMALL = {
    "model_type": "llama", "hidden_size": 512, "intermediate_size": 1376, "num_hidden_layers": 6, "num_attention_heads": 8,
    "num_key_value_heads": 8, "vocab_size": 8000, "tie_word_embeddings": False,
}  # fmt: skip


def make(model: dict[str, Any], keys: dict[str, Any]) -> Job:
    """A job from keys written like ``batch__micro_batch=2``; degrees are set on the completed job, beside ``data_parallel``."""
    mapping: dict[str, dict[str, Any]] = {"model": model}
    degrees: dict[str, int] = {}
    for name, value in keys.items():
        section, _, key = name.partition("__")
        if section == "layout" and key in (*DEGREES, "data_parallel", "shards"):
            degrees[key] = value
        else:
            mapping.setdefault(section, {})[key] = value
    job = complete(worksheet_from_mapping(mapping, "job"))
    return replace(job, layout=replace(job.layout, **degrees)) if degrees else job


@pytest.fixture(scope="session")
def eight_billion() -> Callable[..., Job]:
    """Llama-3.1-8B."""
    return lambda **keys: make({"name": "meta-llama/Llama-3.1-8B"}, keys)


@pytest.fixture(scope="session")
def small() -> Callable[..., Job]:
    """27,171,328 parameters in float32 on torch's own FSDP2: the model whose bytes were counted at the boundary of two hosts."""
    fixed = {"precision__weights": "float32", "precision__compute": "float32", "step__framework": "torch", "batch__sequence_tokens": 256}
    return lambda **keys: make({"config": SMALL}, {**fixed, **keys})


@pytest.fixture(scope="session")
def small_config() -> dict[str, Any]:
    """config.json of ``small``."""
    return {key: value for key, value in SMALL.items() if key != "model_type"}


@pytest.fixture(scope="session")
def mixture() -> Callable[..., Job]:
    """Qwen3-30B-A3B."""
    return lambda **keys: make({"name": "Qwen/Qwen3-30B-A3B"}, keys)
