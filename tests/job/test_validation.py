"""What a worksheet may say: canonical forms, and every fault in one message with its place."""

from __future__ import annotations

from typing import Any

import pytest

from fullstep.errors import Fault, InputError
from fullstep.job import worksheet_from_mapping


def short(value: object) -> str:
    """A name for a test case, whatever its value."""
    return value[:30] if isinstance(value, str) else type(value).__name__


def stated(dotted: str, value: Any) -> Any:
    section, _, name = dotted.rpartition(".")
    mapping: dict[str, dict[str, Any]] = {"model": {"name": "gpt2"}}
    mapping.setdefault(section, {})[name] = value
    return worksheet_from_mapping(mapping).stated(dotted)


def faults_of(mapping: object) -> tuple[Fault, ...]:
    with pytest.raises(InputError) as caught:
        worksheet_from_mapping(mapping, "job.toml")
    return caught.value.faults


@pytest.mark.parametrize(
    ("dotted", "value", "expected"),
    [
        ("precision.compute", "bf16", "bfloat16"),
        ("precision.weights", "fp32", "float32"),
        ("precision.weights", "FP16", "float16"),
        ("precision.weights", "half", "float16"),
        ("layout.strategy", "FSDP", "fsdp"),
        ("layout.strategy", "layer-split", "layer_split"),
        ("goal.currency", "EUR", "EUR"),
        ("batch.micro_batch", 4.0, 4),
        ("batch.mean_sample_tokens", 800.5, 800.5),
        ("machine.gpu_memory_gib", 79.65, 79.65),
        ("machine.gpu_memory_gib", "80GiB", 80.0),
        ("machine.gpu_memory_gib", "85899345920 B", 80.0),
        ("machine.disk_gb", "2TB", 2000.0),
        ("layout.bucket_bytes", "25MiB", 26214400),
        ("layout.bucket_bytes", 500000000, 500000000),
        ("machine.gpus", "8x", 8),
        ("machine.gpus", 8, 8),
        ("step.activation_checkpointing", "selective", "selective"),
        ("step.activation_checkpointing", 3, 3),
        ("layout.reshard_after_forward", False, False),
        ("layout.reshard_after_forward", 8, 8),
        ("method.targets", "all-linear", "all-linear"),
        ("method.targets", ["q_proj", "v_proj"], ("q_proj", "v_proj")),
        ("goal.budget", 1500, "1500"),
        ("goal.budget", 99.5, "99.5"),
        ("goal.budget", "1500.00", "1500.00"),
        ("plan.fixed", ["strategy", "batch.micro_batch"], ("layout.strategy", "batch.micro_batch")),
        ("step.framework_version", "v4.48.1", "4.48.1"),
    ],
)
def test_values_take_their_canonical_form(dotted: str, value: Any, expected: Any) -> None:
    found = stated(dotted, value)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("dotted", "value", "says"),
    [
        ("batch.micro_batch", 0, "from 1 to 1,000,000"),
        ("batch.micro_batch", True, "true; allowed: a whole number"),
        ("batch.micro_batch", 1.5, "1.5"),
        ("batch.micro_batch", "4", "without quotes"),
        ("batch.sequence_tokens", 10**30, "from 1 to 100,000,000"),
        ("batch.sequence_tokens", 10**5000, "more than 40 digits"),
        ("data.tokens", 1e30, "10^18"),
        ("data.tokens", float("nan"), "nan"),
        ("data.tokens", float("inf"), "inf"),
        ("data.tokens", 0, "above 0"),
        ("method.dropout", 1.01, "from 0 to 1"),
        ("goal.reserve_fraction", 1, "below 1"),
        ("goal.budget", -1, "an amount"),
        ("goal.budget", "NaN", "an amount"),
        ("step.compile", 1, "true or false"),
        ("step.compile", "true", "without quotes"),
        ("machine.gpu_memory_gib", "80G", '"80GB" (10^9 bytes) or "80GiB" (2^30 bytes)'),
        ("machine.gpu_memory_gib", "80", "has no known unit"),
        ("machine.gpus", "2x8", "machine.nodes"),
        ("machine.gpus", "0x", "from 1 to 1,024"),
        ("machine.gpu", 8, "machine.gpus"),
        ("method.kind", "loraa", 'Did you mean "lora"?'),
        ("method.targets", "q_proj", '["q_proj"]'),
        ("method.targets", ["q_proj", 3], "a list with 3 in it"),
        ("step.framework_version", 4.48, "quotes"),
        ("step.activation_checkpointing", True, "none, full, selective"),
        ("layout.strategy", None, "nothing (null)"),
        ("layout.strategy", ["ddp"], "a list of 1"),
        ("plan.fixed", ["layout.strategyy"], 'Did you mean "layout.strategy"?'),
        ("plan.fixed", ["micro_batch"], "batch.micro_batch or evaluation.micro_batch"),
        ("model.name", "../../etc/passwd", "model.config"),
        ("model.name", "/etc/passwd", "model.config"),
        ("model.name", "C:\\models\\llama", "model.config"),
        ("model.name", "a/b/c", "model.config"),
        ("model.name", "", "a hub id"),
        ("model.name", "a" * 100_000, "…"),
        ("model.config", {"hidden_size": float("nan")}, "finite"),
        ("model.config", {1: 2}, "Keys of a config are text"),
        ("model.config", "a\0b", "a path"),
    ],
    ids=short,
)
def test_wrong_values_are_refused_with_what_is_allowed(dotted: str, value: Any, says: str) -> None:
    section, _, name = dotted.rpartition(".")
    (fault,) = faults_of({"model": {"name": "gpt2"}, section: {name: value}})
    assert fault.where == f"job.toml: {dotted}"
    assert says in str(fault)
    assert len(str(fault)) < 900


def test_all_faults_are_reported_together() -> None:
    faults = faults_of(
        {
            "schema": 2,
            "modle": {"name": "gpt2"},
            "micro_batch": 3,
            "batch": {"sequence_token": 4096, "micro_batch": -1, 7: 1},
            "optimizer": "adamw",
            "step": {"kind": 1},
        }
    )
    assert [(fault.where.removeprefix("job.toml: "), fault.found) for fault in faults] == [
        ("schema", "2"),
        ("modle", "unknown section or key"),
        ("micro_batch", "unknown section or key"),
        ("batch.sequence_token", "unknown key"),
        ("batch.micro_batch", "-1"),
        ("batch.7", "unknown key"),
        ("optimizer", '"adamw"'),
        ("step.kind", "unknown key"),
    ]
    remedies = [fault.remedy for fault in faults]
    assert "schema 1 only" in remedies[0]
    assert remedies[1] == 'Did you mean "model"?'
    assert remedies[2] == "It belongs in a section: batch.micro_batch or evaluation.micro_batch."
    assert remedies[3] == 'Did you mean "sequence_tokens"?'
    assert remedies[7] == "There is method.kind."


def test_very_many_faults_are_cut_short() -> None:
    faults = faults_of({"batch": {f"key{number}": number for number in range(10_000)}})
    assert len(faults) == 41
    assert faults[-1].found == "more faults after these"


@pytest.mark.parametrize("mapping", [{}, {"model": {}}, {"model": None}, {"batch": {"micro_batch": 1}}])
def test_a_worksheet_needs_a_model(mapping: dict[str, Any]) -> None:
    (fault,) = faults_of(mapping)
    assert fault.where == "job.toml: model"
    assert fault.allowed == "model.name or model.config"


@pytest.mark.parametrize("mapping", [None, [], "model", 3])
def test_what_is_no_table_is_refused(mapping: object) -> None:
    (fault,) = faults_of(mapping)
    assert "instead of a worksheet" in fault.found


def test_a_card_with_its_count() -> None:
    worksheet = worksheet_from_mapping({"model": {"name": "gpt2"}, "machine": {"gpu": "8xH100-SXM"}})
    assert dict(worksheet["machine"]) == {"gpu": "H100-SXM", "gpus": 8}
    worksheet = worksheet_from_mapping({"model": {"name": "gpt2"}, "machine": {"gpus": "4 x L40S"}})
    assert dict(worksheet["machine"]) == {"gpu": "L40S", "gpus": 4}


def test_a_card_with_a_count_that_contradicts_the_other_key() -> None:
    (fault,) = faults_of({"model": {"name": "gpt2"}, "machine": {"gpu": "8xH100-SXM", "gpus": 4}})
    assert "machine.gpus is 4" in fault.found


def test_a_deeply_nested_config_is_refused() -> None:
    config: dict[str, Any] = {}
    for _ in range(500):
        config = {"a": config}
    (fault,) = faults_of({"model": {"config": config}})
    assert "nested more than 16 deep" in fault.found
