"""Probes of more ranks, and of shards over gloo: `make test-slow`."""

from __future__ import annotations

from typing import Any

import pytest

from fullstep.api.probed import Probed, probe
from fullstep.job import worksheet_from_mapping

pytestmark = [pytest.mark.real_classes, pytest.mark.filterwarnings("ignore")]
MODEL = {
    "model_type": "llama", "vocab_size": 1000, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2,
}  # fmt: skip
STEP = ("forward", "loss", "backward", "second_forward", "optimizer_step")


def _probed(layout: str, ranks: int, **sections: Any) -> Probed:
    batch = {"sequence_tokens": 128, "micro_batch": 2, "accumulation": 2}
    sheet = {"model": {"config": MODEL}, "batch": batch, "layout": {"strategy": layout}, **sections}
    return probe(worksheet_from_mapping(sheet), cpu=ranks, steps=3)


@pytest.mark.parametrize(
    ("layout", "ranks", "sections"),
    [
        ("ddp", 2, {}),
        ("ddp", 4, {}),
        ("ddp", 2, {"method": {"kind": "lora"}}),
        ("single", 1, {"precision": {"weights": "float32", "compute": "bfloat16"}}),
        ("single", 1, {"step": {"activation_checkpointing": "full"}}),
    ],
    ids=["ddp of 2", "ddp of 4", "lora", "autocast", "recomputed"],
)
def test_every_instant_is_the_traced_one(layout: str, ranks: int, sections: dict[str, Any]) -> None:
    found = _probed(layout, ranks, **sections)
    assert found.probe.outcome == "completed" and len(found.probe.ranks) == ranks
    lines = {line.what: line for line in found.lines}
    for at in STEP:
        assert lines[at].traced == pytest.approx(lines[at].measured, rel=0.02), at


@pytest.mark.parametrize("ranks", [2, 4])
def test_sharded_steps_hold_no_less_than_traced(ranks: int) -> None:
    """More counts as allocated: threads of gloo release what they have sent, unseen. Without gloo it is the traced: test_session.py."""
    for line in _probed("fsdp", ranks).lines:
        if line.what in STEP:
            assert line.traced is not None and line.traced < 1.02 * line.measured, line.what
