"""The table of keys against the contract, written out by hand, and against the job's fields."""

from __future__ import annotations

from dataclasses import fields

from fullstep.job import Batch, Checkpoint, Data, Evaluation, Goal, Layout, Machine, Method, Optimizer, Precision, Step
from fullstep.job.keys import BY_SECTION, KEYS, SECTIONS, allowed_text

CONTRACT = {
    "": "schema",
    "model": "name config",
    "method": "kind rank targets train_modules dropout quantization double_quantization upcast_unquantized objective",
    "precision": "weights compute autocast gradients adapters reduce master_weights",
    "optimizer": "name implementation state_dtype in_backward",
    "batch": "sequence_tokens micro_batch accumulation global_rows packed mean_sample_tokens",
    "step": "activation_checkpointing attention loss activation_offload compile framework framework_version"
    " loss_input_dtype keeps_outputs gradients_cleared expandable_segments",
    "layout": "strategy implementation shards tensor pipeline context expert reshard_after_forward sync_every_micro_batch"
    " bucket_bytes prefetch_units max_live_parameters offload_optimizer offload_parameters loading",
    "machine": "gpu gpus nodes gpu_memory_gib link network_gbit_s rdma host_memory_gib cpu_cores disk_gb"
    " storage_write_gb_s storage_read_gb_s",
    "data": "tokens examples steps epochs",
    "evaluation": "every_steps rows micro_batch keeps_logits generate_tokens",
    "checkpoint": "lose_at_most_minutes write_within_minutes restore_within_minutes keep format asynchronous async_mode",
    "goal": "finish_within_hours budget currency max_nodes runs idle_hours_between_runs reserve_fraction",
    "plan": "fixed",
    "measured": "allocated_peak_gib reserved_peak_gib device_peak_gib step_seconds exposed_communication_fraction checkpoint_gb",
}


def test_the_keys_are_those_of_the_contract() -> None:
    found: dict[str, list[str]] = {}
    for key in KEYS:
        found.setdefault(key.section, []).append(key.name)
    assert {section: " ".join(names) for section, names in found.items()} == CONTRACT


def test_sections_stand_in_the_order_of_the_contract() -> None:
    assert ["", *SECTIONS] == list(CONTRACT)


def test_every_key_reaches_the_job() -> None:
    """Fields of the job's parts are the keys, but where a size changes its unit or two keys become one."""
    parts = {
        "method": Method, "precision": Precision, "optimizer": Optimizer, "batch": Batch, "step": Step, "layout": Layout,
        "machine": Machine, "data": Data, "evaluation": Evaluation, "checkpoint": Checkpoint, "goal": Goal,
    }  # fmt: skip
    renamed = {
        "gpu": "card", "gpu_memory_gib": "gpu_memory_bytes", "host_memory_gib": "host_memory_bytes", "disk_gb": "disk_bytes",
        "storage_write_gb_s": "storage_write_bytes_per_second", "storage_read_gb_s": "storage_read_bytes_per_second",
    }  # fmt: skip
    becomes_another = {"global_rows"}
    derived = {"data_parallel", "stacked_experts", "usable_bytes"}
    for section, part in parts.items():
        expected = {renamed.get(name, name) for name in BY_SECTION[section]} - becomes_another
        assert {field.name for field in fields(part)} - derived == expected, section


def test_every_key_explains_itself() -> None:
    for key in KEYS:
        assert key.explanation, key.dotted
        assert key.default, key.dotted
        assert allowed_text(key), key.dotted


def test_allowed_words_are_those_of_the_contract() -> None:
    words = {key.dotted: key.choices for key in KEYS}
    assert words["layout.strategy"] == ("single", "ddp", "zero1", "zero2", "zero3", "fsdp", "fsdp_grad_op", "hsdp", "layer_split")
    assert words["optimizer.name"] == (
        "adamw", "adam", "sgd", "sgd_momentum", "adafactor", "lion", "muon", "adamw_8bit", "adamw_4bit", "lion_8bit",
        "paged_adamw", "paged_adamw_8bit", "galore", "apollo",
    )  # fmt: skip
    assert words["step.framework"] == (
        "transformers", "torchtune", "torchtitan", "megatron", "deepspeed", "unsloth", "litgpt", "llamafactory", "axolotl",
        "fms_acceleration", "fsdp_qlora", "torch",
    )  # fmt: skip
    assert words["method.quantization"] == ("none", "nf4", "fp4", "int8", "fp8", "gptq", "mxfp4")
    assert words["precision.compute"] == ("float32", "bfloat16", "float16", "fp8")
    assert words["machine.link"] == ("nvswitch", "nvlink_bridge", "pcie_p2p", "pcie_host")
    assert words["step.loss"] == ("standard", "inplace", "chunked", "fused")
    assert words["goal.currency"] == ("USD", "EUR", "RUB")
