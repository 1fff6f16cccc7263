"""Jobs of Llama-3.1-8B from keys, and kernels of a small block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fullstep.job import Job, complete, worksheet_from_mapping
from fullstep.physics.memory.kernels import Kernels


@pytest.fixture(scope="session")
def eight_billion() -> Callable[..., Job]:
    """A job of Llama-3.1-8B from keys written like ``batch__micro_batch=2``."""

    def job(**keys: Any) -> Job:
        mapping: dict[str, dict[str, Any]] = {"model": {"name": "meta-llama/Llama-3.1-8B"}}
        for name, value in keys.items():
            section, _, key = name.partition("__")
            mapping.setdefault(section, {})[key] = value
        return complete(worksheet_from_mapping(mapping, "8B"))

    return job


@pytest.fixture
def kernels() -> Kernels:
    """Full fine-tuning in bfloat16, flash attention: one row of ten tokens."""
    return Kernels(
        rows=1, sequence_tokens=10, compute=2, residual=2, autocast=False, stored=2, trains_weights=True, new_gradient=2, gradient_work=0,
        adapter=None, quantized=False, quantized_keeps_input=False, attention="flash", masked=False, extra_keys=0, window=None,
        repeats_keys=False, fused=False, compile=False, joins_heads=False, stacks_experts=False,
    )  # fmt: skip
