"""Many families traced: a short trace is the full one, counts are those of the class, and one is told where a class fails."""

from __future__ import annotations

from typing import Any

import pytest
from small_models import TOKENS, of_class, sheet, small

pytestmark = [pytest.mark.real_classes, pytest.mark.filterwarnings("default")]


@pytest.mark.parametrize("model_type", ["bart", "gpt_neo", "jetmoe", "diffllama"])
def test_a_short_trace_is_the_full_one(model_type: str, traced: Any) -> None:
    """Half of a two-sided class, buffers in every block, experts, factors of each block's own: landmarks, reserved bytes, counts."""
    short, full = traced(sheet(small(model_type))), traced(sheet(small(model_type)), full_depth=True)
    assert short.blocks_traced < full.blocks_traced == short.blocks == full.blocks
    assert short.parameters == full.parameters == sum(parameter.numel() for parameter in of_class(small(model_type)).parameters())
    assert short.instants == full.instants
    assert short.reserved_peak_bytes == full.reserved_peak_bytes
    assert short.flops_per_step == full.flops_per_step


@pytest.mark.parametrize(
    "config",
    [
        small("llama"), small("gemma2"), small("bloom"), small("bert"), small("xlm"), small("gemma3"),
        {**small("qwen3_next"), "num_hidden_layers": 4}, {**small("recurrent_gemma"), "num_hidden_layers": 3},
    ],
    ids=lambda config: str(config["model_type"]),
)  # fmt: skip
def test_every_family_is_traced(config: dict[str, Any], traced: Any) -> None:
    """Counted as by the class itself; weights and each of AdamW's states have two bytes an element; the loss has its logits."""
    model = of_class(config)
    count = sum(parameter.numel() for parameter in model.parameters())
    found = traced(sheet(config))
    assert found.parameters == found.trainable_parameters == count
    at = {instant.at: instant.holdings for instant in found.instants}
    assert at["forward"].weights >= 2 * count
    logits = (TOKENS - 1) * model.get_output_embeddings().weight.shape[0]
    assert at["loss"].logits_and_loss >= 2 * logits
    assert at["optimizer_step"].optimizer_states >= 2 * at["optimizer_step"].gradients > 0


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"model_type": "blt"}, "(modeling_blt.py:"),
        (small("git"), "GitForCausalLM stops with ValueError: Expected input batch_size"),
    ],
    ids=["blt", "git"],
)
def test_a_class_that_does_not_run_is_refused_with_its_line(config: dict[str, Any], expected: str, ask: Any) -> None:
    (fault,) = ask(sheet(config))["unsupported"]
    assert fault["found"].startswith(("BltForCausalLM ", "GitForCausalLM "))
    assert expected in fault["found"]
    assert fault["where"] == "model config: model_type"


def test_rows_longer_than_the_positions_that_a_class_learned_are_refused(ask: Any) -> None:
    """On tensors without values nobody would see that the index is outside."""
    config = {"model_type": "gpt2", "n_layer": 2, "n_head": 4, "n_embd": 64, "vocab_size": 256, "n_positions": 64}
    answer = ask({"model": {"config": config}, "batch": {"sequence_tokens": 65}})
    assert answer["faults"][0]["where"] == "batch.sequence_tokens"
    assert "wpe of GPT2LMHeadModel has 64 positions" in answer["faults"][0]["found"]
    assert "trace" in ask({"model": {"config": config}, "batch": {"sequence_tokens": 64}})
