"""Tensor, pipeline, context and expert ranks together with everything else: nothing is refused, and more ranks never hold more."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from fullstep.job import Job, complete, worksheet_from_mapping
from fullstep.ledger import MemoryEstimate
from fullstep.physics import estimate_memory
from fullstep.physics.memory.rank import ranks_of
from fullstep.physics.memory.weights import trainable

LLAMA = {
    "model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 8, "num_attention_heads": 16,
    "num_key_value_heads": 8, "vocab_size": 32000, "tie_word_embeddings": False,
}  # fmt: skip
MIXTRAL = {**LLAMA, "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
FRAMEWORKS = (
    ("transformers", "fsdp", "fsdp2"), ("torchtitan", "fsdp", "fsdp2"), ("torchtitan", "hsdp", "fsdp2"), ("torch", "ddp", "torch"),
    ("megatron", "zero1", "megatron"), ("deepspeed", "zero1", "deepspeed"),
)  # fmt: skip


def job_of(config: dict[str, Any], framework: str, strategy: str, implementation: str, **keys: Any) -> Job:
    sheet: dict[str, Any] = {
        "model": {"config": config}, "step": {"framework": framework}, "machine": {"gpu": "H100-SXM", "gpus": 8, "nodes": 2},
        "layout": {"strategy": strategy, "implementation": implementation}, "batch": {"sequence_tokens": 4096, "accumulation": 8},
    }  # fmt: skip
    for name, value in keys.items():
        section, _, key = name.partition("__")
        sheet.setdefault(section, {})[key] = value
    return complete(worksheet_from_mapping(sheet, "degrees"))


def persistent(found: MemoryEstimate) -> float:
    holdings = next(instant for instant in found.instants if instant.at == "optimizer_step").holdings
    return holdings.weights + holdings.gradients + holdings.optimizer_states


@pytest.mark.parametrize("framework", FRAMEWORKS, ids="-".join)
@pytest.mark.parametrize(
    "degrees",
    [
        {"tensor": 4}, {"pipeline": 4}, {"context": 4}, {"expert": 4}, {"tensor": 2, "pipeline": 2}, {"tensor": 2, "context": 2},
        {"pipeline": 2, "context": 2, "expert": 4}, {"tensor": 2, "pipeline": 2, "context": 2, "expert": 2}, {"tensor": 8, "pipeline": 2},
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("kind", ["full", "lora"])
@pytest.mark.parametrize("saver", ["none", "full", "selective"])
def test_every_combination_is_answered(framework: tuple[str, str, str], degrees: dict[str, int], kind: str, saver: str) -> None:
    keys = {f"layout__{name}": degree for name, degree in degrees.items()}
    if framework[1] == "hsdp":
        keys["layout__shards"] = 1
    job = job_of(MIXTRAL, *framework, method__kind=kind, step__activation_checkpointing=saver, **keys)
    found = estimate_memory(job)
    assert (found.parameters, found.trainable_parameters > 0) == (job.shape.parameters, True)
    for moment in found.instants:
        assert all(size >= 0 for size in moment.holdings), moment
    for counter in (found.allocated, found.reserved, found.device, found.needed):
        assert 0 < counter.low <= counter.likely <= counter.high
    assert found.allocated.likely <= found.reserved.likely <= found.device.likely


@pytest.mark.parametrize("framework", FRAMEWORKS, ids="-".join)
@pytest.mark.parametrize("degree", ["tensor", "pipeline"])
def test_replicas_over_more_ranks_hold_less(framework: tuple[str, str, str], degree: str) -> None:
    """As many data-parallel ranks at every degree, so that nothing but the degree divides state."""
    alone = {} if framework[1] == "ddp" else {"layout__shards": 1}
    sizes = [
        persistent(estimate_memory(job_of(LLAMA, *framework, **{f"layout__{degree}": size, "machine__gpus": size}, **alone)))
        for size in (1, 2, 4, 8)
    ]
    assert all(more < fewer for fewer, more in pairwise(sizes)), sizes


def test_state_is_divided_by_shards_times_context() -> None:
    """16 GPUs: fsdp over all of them, or over 4 ranks of 4 context ranks each, leaves a GPU as much."""
    alone = persistent(estimate_memory(job_of(LLAMA, "torchtitan", "fsdp", "fsdp2")))
    beside = persistent(estimate_memory(job_of(LLAMA, "torchtitan", "fsdp", "fsdp2", layout__context=4)))
    assert beside == pytest.approx(alone)


def test_dealt_experts_are_divided_no_further_than_all_else() -> None:
    """Over 16 shards experts are a sixteenth each, whether 1 or 8 ranks deal them; what is gathered of a block is less."""
    whole, dealt = (estimate_memory(job_of(MIXTRAL, "torchtitan", "fsdp", "fsdp2", layout__expert=degree)) for degree in (1, 8))
    assert persistent(dealt) == pytest.approx(persistent(whole), rel=1e-3)
    gathered = [max(instant.holdings.gathered_parameters for instant in found.instants) for found in (whole, dealt)]
    assert gathered[1] < gathered[0] / 2


def test_one_expert_alone_keeps_its_adapters() -> None:
    """8 experts over 8 ranks: each has an eighth of the adapters on experts."""
    adapters = []
    for degree in (1, 8):
        keys = {"method__kind": "lora", "method__targets": ["experts.gate_up_proj", "experts.down_proj"], "layout__expert": degree}
        (rank,) = ranks_of(job_of(MIXTRAL, "transformers", "fsdp", "fsdp2", **keys))
        adapters.append(trainable(rank.job).adapters)
    assert adapters[0] == 8 * adapters[1] > 0


def test_a_row_over_more_context_ranks_keeps_less() -> None:
    kept = []
    for context in (1, 2, 4):
        found = estimate_memory(job_of(LLAMA, "torchtitan", "fsdp", "fsdp2", layout__context=context))
        kept.append(next(instant for instant in found.instants if instant.at == "loss").holdings.activations)
    assert kept == [pytest.approx(kept[0] / context, rel=1e-6) for context in (1, 2, 4)]


def test_the_first_stage_of_a_pipeline_holds_the_most_micro_batches() -> None:
    job = job_of(LLAMA, "megatron", "zero1", "megatron", layout__pipeline=4)
    ranks = list(ranks_of(job))
    assert [(rank.first_layer, rank.in_flight, len(rank.job.shape.layers)) for rank in ranks] == [(0, 4, 2), (2, 3, 2), (6, 1, 2)]


def test_sequence_parallelism_divides_the_stream() -> None:
    """Korthikanti et al. 2022, table 2: with it every part of the activations is divided by the tensor ranks."""
    kept = {}
    for tensor in (1, 2, 4):
        job = job_of(LLAMA, "megatron", "zero1", "megatron", layout__tensor=tensor, step__attention="flash")
        found = estimate_memory(job)
        kept[tensor] = next(instant for instant in found.instants if instant.at == "loss").holdings.activations
    assert kept[2] == pytest.approx(kept[1] / 2, rel=0.01)
    assert kept[4] == pytest.approx(kept[1] / 4, rel=0.01)


def test_cautions_name_what_is_rough() -> None:
    def codes(*framework: str, **keys: Any) -> set[str]:
        return {caution.code for caution in estimate_memory(job_of(MIXTRAL, *framework, **keys)).cautions}  # type: ignore[arg-type]

    assert "F105" not in codes("transformers", "fsdp", "fsdp2", layout__tensor=2)
    assert "F105" in codes("torchtitan", "fsdp", "fsdp2", layout__context=2)
    assert "F106" in codes("megatron", "zero1", "megatron", layout__pipeline=2)
    assert {"F105", "F107"} <= codes("megatron", "zero1", "megatron", layout__expert=2)
