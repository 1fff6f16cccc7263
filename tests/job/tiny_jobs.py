"""Jobs of a tiny model, from keys written as keyword arguments."""

from __future__ import annotations

from typing import Any

from fullstep.job import Job, complete, worksheet_from_mapping

LLAMA = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 256, "tie_word_embeddings": False,
}  # fmt: skip


def job(**keys: Any) -> Job:
    """A job from keys written like ``layout__strategy="ddp"``."""
    mapping: dict[str, dict[str, Any]] = {"model": {"config": LLAMA, "name": "tiny"}}
    for name, value in keys.items():
        section, _, key = name.partition("__")
        mapping.setdefault(section, {})[key] = value
    return complete(worksheet_from_mapping(mapping, "job.toml"))
