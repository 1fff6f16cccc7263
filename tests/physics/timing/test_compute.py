"""Seconds of a step's parts: arithmetic, and what must hold whatever the rates are."""

from __future__ import annotations

from typing import Any

import pytest

from fullstep.job import Job, complete, worksheet_from_mapping
from fullstep.physics.timing.compute import compute_parts, compute_seconds, part_seconds, why_no_time
from fullstep.physics.timing.optimizer import step_bytes, update_bytes
from fullstep.quantities import Bounds

BASE: dict[str, dict[str, Any]] = {
    "model": {"name": "meta-llama/Llama-3.1-8B"}, "batch": {"sequence_tokens": 4096}, "machine": {"gpu": "A100-SXM4-80GB"},
}  # fmt: skip


def job(**keys: Any) -> Job:
    """The base with keys written like ``batch__micro_batch=2``."""
    mapping = {section: dict(values) for section, values in BASE.items()}
    for name, value in keys.items():
        section, _, key = name.partition("__")
        mapping.setdefault(section, {})[key] = value
    return complete(worksheet_from_mapping(mapping, "job.toml"))


def seconds(**keys: Any) -> Bounds:
    found = compute_seconds(job(**keys))
    assert found is not None
    return found


def waiting(**keys: Any) -> float:
    parts = compute_parts(job(**keys))
    assert parts is not None
    return sum(part.seconds.likely for part in parts if part.bound_by == "launch")


def test_a_published_full_step_on_one_a100() -> None:
    """5.35 s: Mistral-7B, 4 rows of 4,096, full checkpointing (fms-acceleration, a100_80gb.csv, row 8)."""
    found = seconds(
        model__name="mistralai/Mistral-7B-v0.1", batch__micro_batch=4, step__activation_checkpointing="full", step__attention="flash",
        step__framework_version="4.48.1",
    )  # fmt: skip
    assert found.low < 5.35 < found.high
    assert found.likely == pytest.approx(5.35, rel=0.1)


def test_parts_are_positive_named_and_in_order() -> None:
    parts = compute_parts(job(method__kind="qlora", step__activation_checkpointing="full"))
    assert parts is not None
    assert {part.phase for part in parts} == {"forward", "backward", "optimizer_step"}
    assert {"dequantization", "adapters", "attention", "feed forward", "loss", "optimizer"} <= {part.what for part in parts}
    for part in parts:
        assert 0 <= part.seconds.low <= part.seconds.likely <= part.seconds.high, part
        assert part.bound_by in ("compute", "memory", "launch", "pcie")


def test_a_step_is_its_micro_batches_and_the_optimizer() -> None:
    found = job(batch__accumulation=4)
    parts = compute_parts(found)
    whole = compute_seconds(found)
    assert parts is not None and whole is not None
    micro = part_seconds(parts, "forward").likely + part_seconds(parts, "backward").likely
    assert whole.likely == pytest.approx(4 * micro + part_seconds(parts, "optimizer_step").likely)


def test_more_work_takes_longer() -> None:
    plain = seconds().likely
    assert seconds(batch__micro_batch=2).likely > 1.8 * plain
    assert seconds(step__activation_checkpointing="full").likely > 1.2 * plain
    assert seconds(step__attention="eager").likely > plain
    assert seconds(step__compile=True).likely < plain
    assert seconds(method__kind="lora").likely < plain
    assert seconds(machine__gpu="H100-SXM").likely < plain / 2


def test_fp8_against_16_bits_of_8b_on_h100() -> None:
    """torchao, docs/source/workflows/training.md: 6,150 tokens/s in bfloat16, 7,690 with tensorwise fp8, compiled: 0.80 of the time."""
    half, eight = (
        seconds(
            machine__gpu="H100-SXM", machine__gpus=8, batch__sequence_tokens=8192, step__framework="torchtitan", step__compile=True,
            step__activation_checkpointing="selective", precision__weights="float32", precision__compute=kind,
        ).likely
        for kind in ("bfloat16", "fp8")
    )  # fmt: skip
    assert eight / half == pytest.approx(0.80, abs=0.06)


def test_a_small_model_waits_for_python_and_a_compiled_one_less() -> None:
    small = {"model__name": "Qwen/Qwen2-0.5B", "batch__sequence_tokens": 256}
    assert waiting() == 0
    assert waiting(**small) > waiting(**small, step__compile=True)
    assert waiting(**small) > 0.4 * seconds(**small).likely


@pytest.mark.parametrize(
    ("name", "implementation", "sizes", "master", "bytes_per_parameter"),
    [
        ("adamw", "fused", (4, 4, 4), False, 28),  # r p g m v, w p m v
        ("adamw", "foreach", (2, 2, 2), False, 40),  # 20 passes
        ("adamw_8bit", "foreach", (2, 2, 1), False, 10),
        ("sgd", "foreach", (2, 2, 2), False, 6),
        ("adamw", "deepspeed", (2, 2, 4), True, 40),  # 28, gradient widened r2 w4, weight written r4 w2
    ],
)
def test_bytes_of_an_update(
    name: str, implementation: str, sizes: tuple[int, int, int], *, master: bool, bytes_per_parameter: float
) -> None:
    assert update_bytes(name, implementation, *sizes, master=master) == bytes_per_parameter


def test_a_sharded_update_is_divided() -> None:
    """8 billion parameters in bfloat16 by foreach AdamW with clipping: (40 + 6) * 8.03e9 bytes, over eight GPUs an eighth."""
    alone = step_bytes(job())
    assert alone == pytest.approx(46 * 8_030_261_248)
    sharded = job(machine__gpus=8, layout__strategy="fsdp")
    assert step_bytes(sharded) == pytest.approx(alone / 8)


def test_an_offloaded_optimizer_takes_seconds_of_host_and_pcie() -> None:
    """28 bytes of host memory for each of 8.03e9 parameters at 80 GB/s are 2.8 s."""
    parts = compute_parts(job(layout__strategy="zero2", layout__offload_optimizer=True))
    assert parts is not None
    by_name = {part.what: part for part in parts if part.phase == "optimizer_step"}
    assert by_name["optimizer on the host"].seconds.likely == pytest.approx(28 * 8_030_261_248 / 80e9)
    assert by_name["gradients and weights over PCIe"].bound_by == "pcie"


def test_no_card_no_time_and_the_reason() -> None:
    mapping = {section: values for section, values in BASE.items() if section != "machine"}
    nowhere = complete(worksheet_from_mapping(mapping, "job.toml"))
    assert compute_parts(nowhere) is None
    assert why_no_time(nowhere) == "the worksheet names no GPU"
    old = job(machine__gpu="P40", precision__weights="float32", precision__compute="float32")
    assert compute_seconds(old) is None
    assert "P40" in why_no_time(old)
    assert why_no_time(job()) == ""


def copying(**keys: Any) -> float:
    parts = compute_parts(job(**keys))
    assert parts is not None
    return sum(part.seconds.likely for part in parts if part.what == "copies of weights and gradients")


def test_experts_of_other_ranks_are_not_copied() -> None:
    """Qwen3-30B-A3B: 128 experts of 3 * 2,048 * 768 in 48 blocks are 28,991,029,248 of 30,532,122,624 parameters; 8 ranks deal them out.

    Megatron's products read the float32 gradient besides and write 4 bytes in the place of 2: 6 bytes each.
    """
    keys = {"model__name": "Qwen/Qwen3-30B-A3B", "layout__strategy": "zero1", "machine__gpus": 8}
    keys |= {"step__framework": "megatron", "layout__expert": 8, "precision__gradients": "float32"}
    here = 30_532_122_624 - 28_991_029_248 * 7 / 8
    assert copying(**keys) == pytest.approx(6 * here / (0.85 * 2.039e12), rel=1e-6)


def test_ddp_copies_to_its_buckets_when_it_reduces() -> None:
    """Without a sync in every micro-batch once a step: gradients of 2 bytes r w r w, and r r w for each sum but the first."""
    keys = {"machine__gpus": 8, "layout__strategy": "ddp", "batch__accumulation": 4}
    element_bytes = 4 * 2 / 4 + 3 * 2 * 3 / 4
    assert copying(**keys) == pytest.approx(element_bytes * 8_030_261_248 / (0.85 * 2.039e12), rel=1e-6)


def test_recomputation_is_launched_by_python() -> None:
    """A tiny step waits for launches alone: with checkpointing backward launches forward's kernels once more, all but a block's last."""
    tiny = {"batch__sequence_tokens": 16, "model__config": {"model_type": "llama", "hidden_size": 256, "num_attention_heads": 4}}
    waits = [waiting(**tiny, step__activation_checkpointing=every) for every in ("none", "full")]
    kernels = 32 * (39 - 1)
    assert waits[1] - waits[0] == pytest.approx(kernels * 18e-6, rel=0.05)


def test_without_units_for_bfloat16_products_run_in_float32() -> None:
    """T4: 8.1 against 65 TFLOP/s of its data sheet."""
    card = {"model__name": "Qwen/Qwen2.5-1.5B", "machine__gpu": "T4", "method__kind": "lora"}
    half = seconds(**card, precision__weights="float16", precision__compute="float16").likely
    emulated, wide = seconds(**card).likely, seconds(**card, precision__weights="float32", precision__compute="float32").likely
    assert 2.5 * half < emulated < wide


def test_optimizers_differ_on_the_host_too() -> None:
    """SGD reads and writes 12 bytes of an element there, AdamW 28; Muon multiplies matrices besides."""
    def on_the_host(name: str) -> float:
        parts = compute_parts(job(optimizer__name=name, layout__strategy="fsdp", layout__offload_parameters=True, machine__gpus=8))
        assert parts is not None
        return sum(part.seconds.likely for part in parts if part.what.endswith("on the host"))

    assert on_the_host("sgd") == pytest.approx(on_the_host("adamw") * 12 / 28)
    assert on_the_host("muon") > on_the_host("adamw")
