"""Every default of the contract, row by row, with hand-written expectations; and that each one used is listed."""

from __future__ import annotations

from typing import Any

import pytest
from tiny_jobs import LLAMA, job

from fullstep.errors import InputError, UnsupportedError
from fullstep.job import Job, complete, worksheet_from_mapping

ALL_LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def value_at(it: Job, dotted: str) -> Any:
    section, _, name = dotted.partition(".")
    return getattr(getattr(it, section), name)


DEFAULTS: list[tuple[dict[str, Any], str, Any]] = [
    ({}, "method.kind", "full"),
    ({"method__kind": "lora"}, "method.rank", 16),
    ({"method__kind": "lora"}, "method.targets", ("q_proj", "v_proj")),
    ({"method__kind": "ia3"}, "method.targets", ("k_proj", "v_proj", "down_proj")),
    ({"method__kind": "lora"}, "method.train_modules", ()),
    ({"method__kind": "lora"}, "method.dropout", 0),
    ({"method__kind": "lora"}, "method.quantization", "none"),
    ({"method__kind": "qlora"}, "method.quantization", "nf4"),
    ({"method__kind": "qlora"}, "method.double_quantization", False),
    ({"method__kind": "qlora"}, "method.upcast_unquantized", True),
    ({"method__kind": "qlora", "method__quantization": "gptq"}, "method.upcast_unquantized", False),
    ({"method__kind": "qlora", "step__framework": "axolotl"}, "method.upcast_unquantized", False),
    ({}, "method.objective", "sft"),
    ({}, "precision.weights", "bfloat16"),
    ({}, "precision.compute", "bfloat16"),
    ({}, "precision.autocast", False),
    ({"precision__weights": "float32"}, "precision.autocast", True),
    ({"precision__weights": "float32", "machine__gpus": 2}, "precision.autocast", False),
    ({"precision__weights": "float32", "machine__gpus": 2, "layout__strategy": "ddp"}, "precision.autocast", True),
    ({"precision__weights": "float32", "machine__gpus": 2, "layout__strategy": "layer_split"}, "precision.autocast", True),
    ({"method__kind": "lora"}, "precision.autocast", True),
    ({"method__kind": "lora", "step__framework": "axolotl"}, "precision.autocast", True),
    ({"method__kind": "lora", "step__framework": "llamafactory"}, "precision.autocast", True),
    ({"method__kind": "lora", "step__framework": "torchtune"}, "precision.autocast", False),
    ({"method__kind": "lora", "machine__gpus": 2}, "precision.autocast", False),
    ({}, "precision.gradients", "bfloat16"),
    ({"precision__weights": "float32"}, "precision.gradients", "float32"),
    ({"method__kind": "lora"}, "precision.gradients", "float32"),
    ({"precision__master_weights": True, "precision__compute": "float16"}, "precision.gradients", "float16"),
    ({"method__kind": "lora"}, "precision.adapters", "float32"),
    ({}, "precision.reduce", "bfloat16"),
    ({"machine__gpus": 2}, "precision.reduce", "float32"),
    ({"machine__gpus": 2, "layout__strategy": "zero1"}, "precision.reduce", "float32"),
    ({}, "precision.master_weights", False),
    ({"machine__gpus": 2}, "precision.master_weights", False),
    ({"machine__gpus": 2, "layout__strategy": "zero1"}, "precision.master_weights", True),
    ({"machine__gpus": 2, "layout__strategy": "zero3"}, "precision.master_weights", True),
    ({"machine__gpus": 2, "layout__strategy": "zero3", "precision__weights": "float32"}, "precision.master_weights", False),
    ({"machine__gpus": 2, "layout__strategy": "zero3", "method__kind": "lora"}, "precision.master_weights", False),
    ({"step__framework": "megatron"}, "precision.master_weights", True),
    ({}, "optimizer.name", "adamw"),
    ({}, "optimizer.implementation", "foreach"),
    ({"optimizer__name": "sgd"}, "optimizer.implementation", "foreach"),
    ({"optimizer__name": "adamw_8bit"}, "optimizer.implementation", "single"),
    ({"machine__gpus": 2, "layout__strategy": "zero2"}, "optimizer.implementation", "deepspeed"),
    ({}, "optimizer.state_dtype", "bfloat16"),
    ({"precision__weights": "float32"}, "optimizer.state_dtype", "float32"),
    ({"precision__master_weights": True}, "optimizer.state_dtype", "float32"),
    ({"optimizer__name": "adamw_8bit"}, "optimizer.state_dtype", "int8"),
    ({"optimizer__name": "paged_adamw_8bit"}, "optimizer.state_dtype", "int8"),
    ({"method__kind": "lora"}, "optimizer.state_dtype", "float32"),
    ({}, "optimizer.in_backward", False),
    ({}, "batch.sequence_tokens", 2048),
    ({}, "batch.micro_batch", 1),
    ({}, "batch.accumulation", 1),
    ({"batch__global_rows": 64, "batch__micro_batch": 2, "machine__gpus": 8}, "batch.accumulation", 4),
    ({}, "batch.packed", True),
    ({"batch__packed": False, "batch__sequence_tokens": 512}, "batch.mean_sample_tokens", 512),
    ({}, "step.activation_checkpointing", "none"),
    ({}, "step.attention", "sdpa"),
    ({}, "step.loss", "standard"),
    ({}, "step.activation_offload", False),
    ({}, "step.compile", False),
    ({}, "step.framework", "transformers"),
    ({}, "step.expandable_segments", False),
    ({}, "layout.strategy", "single"),
    ({"machine__gpus": 2}, "layout.strategy", "fsdp"),
    ({"machine__nodes": 2}, "layout.strategy", "fsdp"),
    ({}, "layout.implementation", "torch"),
    ({"machine__gpus": 2}, "layout.implementation", "fsdp2"),
    ({"machine__gpus": 2, "layout__strategy": "zero3"}, "layout.implementation", "deepspeed"),
    ({"machine__gpus": 2, "layout__strategy": "ddp"}, "layout.implementation", "torch"),
    ({"machine__gpus": 8, "machine__nodes": 2}, "layout.shards", 16),
    ({"machine__gpus": 8, "machine__nodes": 2, "layout__strategy": "hsdp"}, "layout.shards", 8),
    ({"machine__gpus": 2}, "layout.reshard_after_forward", True),
    ({"machine__gpus": 2, "layout__strategy": "fsdp_grad_op"}, "layout.reshard_after_forward", False),
    ({"machine__gpus": 2}, "layout.sync_every_micro_batch", True),
    ({"machine__gpus": 2, "layout__strategy": "zero2"}, "layout.sync_every_micro_batch", True),
    ({"machine__gpus": 2, "layout__strategy": "zero3"}, "layout.sync_every_micro_batch", True),
    ({"machine__gpus": 2, "layout__strategy": "zero1"}, "layout.sync_every_micro_batch", False),
    ({"machine__gpus": 2, "layout__strategy": "ddp"}, "layout.sync_every_micro_batch", False),
    ({}, "layout.offload_optimizer", False),
    ({}, "layout.offload_parameters", False),
    ({}, "layout.loading", "every_rank"),
    ({"machine__gpus": 2}, "layout.loading", "rank0"),
    ({"step__framework": "fsdp_qlora"}, "layout.loading", "rank0"),
    ({"step__framework": "torchtune"}, "layout.loading", "meta"),
    ({"step__framework": "torchtitan"}, "layout.loading", "meta"),
    ({}, "machine.gpus", 1),
    ({}, "machine.nodes", 1),
    ({"data__tokens": 1e9}, "data.epochs", 1),
    ({"evaluation__rows": 100, "batch__micro_batch": 4}, "evaluation.micro_batch", 4),
    ({"evaluation__rows": 100}, "evaluation.keeps_logits", False),
    ({}, "checkpoint.lose_at_most_minutes", 30),
    ({}, "checkpoint.write_within_minutes", 5),
    ({}, "checkpoint.restore_within_minutes", 15),
    ({}, "checkpoint.keep", 2),
    ({}, "checkpoint.format", "sharded"),
    ({}, "checkpoint.asynchronous", False),
    ({"checkpoint__asynchronous": True}, "checkpoint.async_mode", "thread"),
    ({}, "goal.currency", "USD"),
    ({}, "goal.runs", 1),
    ({"goal__runs": 3}, "goal.idle_hours_between_runs", 0),
    ({}, "goal.reserve_fraction", 0.05),
]  # fmt: skip


@pytest.mark.parametrize(("keys", "dotted", "expected"), DEFAULTS)
def test_a_default_of_the_contract_is_used_and_listed(keys: dict[str, Any], dotted: str, expected: Any) -> None:
    it = job(**keys)
    assert value_at(it, dotted) == expected
    listed = [assumption for assumption in it.assumptions if assumption.key == dotted]
    assert len(listed) == 1, dotted
    assert listed[0].value == expected
    assert listed[0].why


def test_nothing_is_listed_twice_and_nothing_that_was_stated() -> None:
    it = job(method__kind="lora", method__rank=8, machine__gpu="H100-SXM", machine__gpus=8, batch__sequence_tokens=4096)
    keys = [assumption.key for assumption in it.assumptions]
    assert len(keys) == len(set(keys))
    assert not {"method.kind", "method.rank", "machine.gpu", "machine.gpus", "batch.sequence_tokens"} & set(keys)


def test_the_same_worksheet_gives_the_same_job() -> None:
    assert job(machine__gpus=2) == job(machine__gpus=2)


def test_stated_values_are_kept_and_sizes_become_bytes() -> None:
    it = job(
        machine__gpu="A100-SXM4-80GB", machine__gpus=4, machine__gpu_memory_gib=79.0, machine__host_memory_gib=512, machine__disk_gb=1000,
        machine__storage_write_gb_s=2, layout__bucket_bytes="25MiB", measured__reserved_peak_gib=40.5, plan__fixed=["layout.strategy"],
    )  # fmt: skip
    assert it.machine.card is not None and it.machine.card.key == "A100-SXM4-80GB"
    assert it.machine.gpu_memory_bytes == 79 * 2**30
    assert it.machine.usable_bytes is not None and 78 * 2**30 < it.machine.usable_bytes <= 79 * 2**30
    assert it.machine.host_memory_bytes == 512 * 2**30
    assert it.machine.disk_bytes == 10**12
    assert it.machine.storage_write_bytes_per_second == 2 * 10**9
    assert it.layout.bucket_bytes == 25 * 2**20
    assert it.measured == {"reserved_peak_gib": 40.5}
    assert it.fixed == {"layout.strategy"}


def test_no_gpu_leaves_the_card_open() -> None:
    it = job()
    assert it.machine.card is None and it.machine.usable_bytes is None and it.machine.link is None
    assert "machine.gpu" in [assumption.key for assumption in it.assumptions]


EXPERTS = ("experts.gate_up_proj", "experts.down_proj", "gate.weight")
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
MIXTRAL = {"model_type": "mixtral", "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2}


@pytest.mark.parametrize(
    ("version", "kind", "stated", "targets"),
    [
        ("5.23", "lora", "all-linear", {*ATTENTION, *EXPERTS}),
        ("5.23", "dora", "all-linear", {*ATTENTION}),  # peft adapts parameters by LoRA alone
        ("5.23", "lora", ["w1", "w3"], {"experts.gate_up_proj"}),
        ("5.23", "lora", ["q_proj", "gate"], {"q_proj", "gate.weight"}),
        ("4.57", "lora", "all-linear", {*ATTENTION, *EXPERTS}),  # modules like all others
        ("4.57", "dora", ["q_proj", "w2"], {"q_proj", "experts.down_proj"}),
    ],
)
def test_experts_among_the_targets(version: str, kind: str, stated: Any, targets: set[str]) -> None:
    keys: dict[str, Any] = {"method__kind": kind, "method__targets": stated, "step__framework_version": version}
    it = job(model__config=MIXTRAL, **keys)
    assert set(it.method.targets) == targets
    assert it.method.stacked_experts == (version == "5.23")


def test_targets_by_name_path_and_all_linear() -> None:
    assert job(method__kind="lora", method__targets="all-linear").method.targets == ALL_LINEAR
    assert job(method__kind="lora", method__targets=["self_attn.q_proj", "q_proj", "lm_head"]).method.targets == ("q_proj", "lm_head")
    it = job(method__kind="lora", method__targets=["q_proj", "c_attn"])
    assert it.method.targets == ("q_proj",)
    assert [code for code, _ in it.cautions] == ["F002"]


def test_a_model_type_without_peft_default_gets_all_linear() -> None:
    config = {**LLAMA, "model_type": "olmo2"}
    it = complete(worksheet_from_mapping({"model": {"config": config}, "method": {"kind": "lora"}}))
    assert set(it.method.targets) == set(ALL_LINEAR)
    assert ("method.targets", "all-linear") in [(assumption.key, assumption.value) for assumption in it.assumptions]


def test_layer_split_is_one_rank_on_all_gpus() -> None:
    it = job(machine__gpus=4, layout__strategy="layer_split")
    assert (it.layout.data_parallel, it.layout.shards) == (1, 1)


def test_the_inline_config_wins_over_the_name() -> None:
    it = complete(worksheet_from_mapping({"model": {"name": "meta-llama/Llama-3.1-8B", "config": LLAMA}}))
    assert it.shape.hidden == 64
    assert it.shape.name == "meta-llama/Llama-3.1-8B"


def test_faults_of_model_card_and_settings_come_together() -> None:
    with pytest.raises(InputError) as caught:
        complete(
            worksheet_from_mapping(
                {
                    "model": {"name": "no-such-model"},
                    "machine": {"gpu": "H1000", "gpus": 8},
                    "layout": {"strategy": "single"},
                    "batch": {"global_rows": 7},
                },
                "job.toml",
            )
        )
    assert not isinstance(caught.value, UnsupportedError)
    text = str(caught.value)
    for key in ("model.name", "machine.gpu", "layout.strategy", "batch.global_rows"):
        assert f"job.toml: {key}: " in text


def test_a_fault_inside_a_config_names_its_key() -> None:
    with pytest.raises(InputError, match=r"^job\.toml: model\.config: hidden_size: "):
        complete(worksheet_from_mapping({"model": {"config": {**LLAMA, "hidden_size": -4}}}, "job.toml"))
