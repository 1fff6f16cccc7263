"""Combinations that cannot be are faults that name the keys; those that surprise are cautions; what is not covered says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tiny_jobs import LLAMA, job

from fullstep.errors import InputError, UnsupportedError
from fullstep.job import CAUTIONS, complete, worksheet_from_mapping

MIXTRAL = {**LLAMA, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}


@pytest.mark.parametrize(
    ("keys", "where", "says"),
    [
        ({"machine__gpus": 8, "layout__strategy": "single"}, "layout.strategy", '"single" on 8 GPUs'),
        ({"machine__nodes": 2, "layout__strategy": "layer_split"}, "layout.strategy", "machine.nodes = 1"),
        ({"machine__gpus": 8, "layout__shards": 3}, "layout.shards", "Nearest: 1, 2, 4"),
        ({"machine__gpus": 8, "layout__shards": 16}, "layout.shards", "Nearest: 2, 4, 8"),
        ({"machine__gpus": 8, "layout__strategy": "ddp", "layout__shards": 8}, "layout.shards", "divides nothing"),
        ({"machine__gpus": 8, "layout__reshard_after_forward": 3}, "layout.reshard_after_forward", "a divisor"),
        ({"machine__gpus": 3, "layout__tensor": 2}, "layout.tensor", "does not divide 3 GPUs"),
        ({"machine__gpus": 4, "layout__tensor": 4}, "layout.tensor", "4, which does not divide the 2 key-value heads; allowed: 1, 2"),
        ({"machine__gpus": 8, "layout__tensor": 8}, "layout.tensor", "8, which does not divide the 4 attention heads; allowed: 1, 2, 4"),
        ({"machine__gpus": 4, "layout__pipeline": 4}, "layout.pipeline", "4 stages for a model of 2 layers; allowed: at most 2"),
        (
            {"machine__gpus": 4, "layout__pipeline": 2, "layout__strategy": "zero3"},
            "layout.pipeline",
            'with layout.strategy "zero3" of DeepSpeed',
        ),
        (
            {"machine__gpus": 4, "layout__context": 4, "batch__sequence_tokens": 1022},
            "layout.context",
            "does not divide rows of 1022 tokens",
        ),
        (
            {"machine__gpus": 8, "layout__context": 8, "layout__strategy": "zero1"},
            "layout.context",
            "does not divide the 4 attention heads of a rank",
        ),
        ({"machine__gpus": 8, "layout__expert": 2}, "layout.expert", "which has no experts"),
        ({"machine__gpus": 8, "layout__expert": 8, "model__config": MIXTRAL}, "layout.expert", "does not divide the 4 experts"),
        (
            {"machine__gpus": 8, "layout__expert": 4, "layout__tensor": 2, "layout__pipeline": 2, "model__config": MIXTRAL},
            "layout.expert",
            "2 data-parallel * 1 context ranks",
        ),
        ({"machine__gpus": 4, "layout__tensor": 2, "layout__strategy": "layer_split"}, "layout.tensor", '"layer_split"'),
        (
            {"machine__gpus": 2, "layout__strategy": "zero2", "layout__implementation": "fsdp2"},
            "layout.implementation",
            "deepspeed, megatron",
        ),
        ({"batch__global_rows": 10, "batch__micro_batch": 4}, "batch.global_rows", "Nearest: 8 or 12"),
        ({"batch__global_rows": 2, "batch__micro_batch": 4}, "batch.global_rows", "Nearest: 4."),
        ({"batch__global_rows": 8, "batch__accumulation": 4}, "batch.accumulation", "needs 8"),
        ({"batch__mean_sample_tokens": 4096, "batch__sequence_tokens": 512}, "batch.mean_sample_tokens", "at most"),
        ({"precision__master_weights": True, "precision__weights": "float32"}, "precision.master_weights", "precision.weights"),
        ({"precision__master_weights": True, "method__kind": "lora"}, "precision.master_weights", "precision.adapters"),
        ({"precision__compute": "fp8", "machine__gpu": "A100-SXM4-80GB"}, "precision.compute", "does not compute in fp8"),
        ({"method__kind": "qlora", "method__quantization": "none"}, "method.quantization", 'method.kind = "lora"'),
        ({"method__quantization": "nf4"}, "method.quantization", "qlora"),
        ({"method__kind": "lora", "method__targets": ["c_attn", "Wqkv"]}, "method.targets", "q_proj"),
        ({"method__kind": "lora", "method__targets": []}, "method.targets", "an empty list"),
        ({"optimizer__name": "adamw_8bit", "optimizer__implementation": "fused"}, "optimizer.implementation", "sgd_momentum"),
        ({"optimizer__in_backward": True, "batch__accumulation": 2}, "optimizer.in_backward", "cannot be accumulated"),
        ({"step__attention": "flash", "precision__weights": "float32", "precision__compute": "float32"}, "step.attention", "bfloat16"),
        ({"data__tokens": 1e6, "data__steps": 10}, "data.steps", "together"),
        ({"machine__gpu": "A100"}, "machine.gpu", "A100-SXM4-80GB"),
    ],
)
def test_impossible_combinations(keys: dict[str, Any], where: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        job(**keys)
    assert not isinstance(caught.value, UnsupportedError)
    (fault,) = caught.value.faults
    assert fault.where == f"job.toml: {where}"
    assert says in str(fault)


@pytest.mark.parametrize(
    ("keys", "code", "says"),
    [
        ({"method__rank": 8}, "F001", "method.rank"),
        ({"evaluation__keeps_logits": True}, "F001", "evaluation.keeps_logits"),
        ({"method__kind": "prefix_tuning", "method__targets": ["q_proj"]}, "F001", "method.targets"),
        ({"method__kind": "lora", "method__train_modules": ["wte"]}, "F002", "wte"),
        ({"machine__gpu": "T4"}, "F003", "T4"),
        ({"method__kind": "qlora", "layout__strategy": "zero3", "machine__gpus": 2}, "F004", "nf4"),
        ({"layout__strategy": "zero2", "machine__gpus": 2, "layout__offload_parameters": True}, "F005", "zero2"),
        ({"step__attention": "flash", "machine__gpu": "V100-SXM2-32GB"}, "F006", "V100"),
        ({"machine__gpus": 2, "layout__offload_optimizer": True}, "F007", "layout.offload_parameters"),
        ({"method__kind": "prefix_tuning", "step__activation_checkpointing": "full"}, "F008", "prefix"),
        ({"machine__gpu": "H100-SXM-96GB"}, "F009", "machine"),
    ],
)
def test_cautions(keys: dict[str, Any], code: str, says: str) -> None:
    found = dict(job(**keys).cautions)
    assert code in found
    assert code in CAUTIONS
    assert says in found[code] or code == "F009"


def test_a_plain_worksheet_has_no_cautions() -> None:
    assert job(machine__gpu="H100-SXM", machine__gpus=8).cautions == ()


@pytest.mark.parametrize(
    ("keys", "where", "says"),
    [
        ({"method__kind": "adalora"}, "method.kind", "fullstep trace"),
        ({"method__objective": "ppo"}, "method.objective", "sft"),
        ({"method__objective": "grpo"}, "method.objective", "sft"),
    ],
)
def test_what_is_not_covered_is_refused_by_name(keys: dict[str, Any], where: str, says: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        job(**keys)
    (fault,) = caught.value.faults
    assert fault.where == f"job.toml: {where}"
    assert says in str(fault)


def test_all_uncovered_keys_at_once_but_after_faults() -> None:
    with pytest.raises(UnsupportedError) as caught:
        job(machine__gpus=8, method__objective="ppo", method__kind="vera")
    assert [fault.where.removeprefix("job.toml: ") for fault in caught.value.faults] == ["method.kind", "method.objective"]
    with pytest.raises(InputError) as wrong:
        job(machine__gpus=8, method__kind="vera", layout__shards=3)
    assert not isinstance(wrong.value, UnsupportedError)


@pytest.mark.parametrize(
    ("keys", "ranks", "shards"),
    [
        ({"layout__tensor": 2}, 8, 8),
        ({"layout__tensor": 2, "layout__pipeline": 2, "layout__context": 2}, 2, 2),
        ({"layout__context": 4, "layout__shards": 2}, 4, 2),
        ({"layout__tensor": 2, "layout__strategy": "hsdp", "layout__shards": 4}, 8, 4),
        ({"layout__expert": 4, "model__config": MIXTRAL}, 16, 16),
    ],
)
def test_degrees_leave_fewer_data_parallel_ranks(keys: dict[str, Any], ranks: int, shards: int) -> None:
    """gpus * nodes / (tensor * pipeline * context) of 16 GPUs; experts lie inside them."""
    layout = job(machine__gpus=8, machine__nodes=2, **keys).layout
    assert (layout.data_parallel, layout.shards) == (ranks, shards)


def test_an_unknown_kind_is_a_fault_with_the_nearest() -> None:
    with pytest.raises(InputError, match='Did you mean "adalora"') as caught:
        job(method__kind="adalor")
    assert not isinstance(caught.value, UnsupportedError)


@pytest.mark.parametrize(
    ("measured", "key"),
    [
        ({"allocated_peak_gib": 50, "reserved_peak_gib": 40}, "measured.allocated_peak_gib"),
        ({"reserved_peak_gib": 50, "device_peak_gib": 49}, "measured.reserved_peak_gib"),
        ({"allocated_peak_gib": 50, "device_peak_gib": 49}, "measured.allocated_peak_gib"),
        ({"device_peak_gib": 79.7}, "measured.device_peak_gib"),
        ({"allocated_peak_gib": 200}, "measured.allocated_peak_gib"),
        ({"reserved_peak_gib": 0}, "measured.reserved_peak_gib"),
        ({"allocated_peak_gib": -3}, "measured.allocated_peak_gib"),
    ],
)
def test_impossible_pilots(measured: dict[str, float], key: str) -> None:
    """Allocated lies inside reserved, reserved inside device, device inside the 79.65 GiB of the card."""
    with pytest.raises(InputError) as caught:
        complete(worksheet_from_mapping({"model": {"name": "gpt2"}, "machine": {"gpu": "H100-SXM"}, "measured": measured}))
    assert [fault.where for fault in caught.value.faults] == [f"worksheet: {key}"]


def test_a_guessed_card_may_turn_out_larger() -> None:
    """Nobody published what an RTX4500Ada reports: its 24 GB may be as much as 24 GiB, but not more."""
    sheet = {"model": {"name": "gpt2"}, "machine": {"gpu": "RTX4500Ada"}}
    complete(worksheet_from_mapping({**sheet, "measured": {"device_peak_gib": 23.5}}))
    with pytest.raises(InputError, match=r"24\.00"):
        complete(worksheet_from_mapping({**sheet, "measured": {"device_peak_gib": 24.5}}))


def test_sizes_that_a_config_leaves_out_are_assumptions(tmp_path: Path) -> None:
    """The defaults of LlamaConfig."""
    config = {"model_type": "llama", "hidden_size": 2048, "num_attention_heads": 32, "num_key_value_heads": 8}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    for model in ({"config": config}, {"config": str(tmp_path)}):
        told = {key: (value, why) for key, value, why in complete(worksheet_from_mapping({"model": model})).assumptions}
        why = "left out: default of the class"
        assert told["model.config.num_hidden_layers"] == (32, why)
        assert told["model.config.vocab_size"] == (32000, why)
        assert told["model.config.intermediate_size"] == (11008, why)
        assert "model.config.hidden_size" not in told and "model.config.num_key_value_heads" not in told
    bundled = complete(worksheet_from_mapping({"model": {"name": "gpt2"}})).assumptions
    assert not [key for key, _, _ in bundled if key.startswith("model.config")]
