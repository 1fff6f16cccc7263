"""How long saves hold a run up: arithmetic."""

from __future__ import annotations

from typing import Any

import pytest

from fullstep.job import Job, complete, worksheet_from_mapping
from fullstep.physics.checkpointing import checkpoint_seconds, resumable_bytes, stall_seconds
from fullstep.quantities import Bounds

EIGHT_BILLION = 8_030_261_248


def job(**sections: Any) -> Job:
    mapping = {
        "model": {"name": "meta-llama/Llama-3.1-8B"}, "precision": {"weights": "float32"},
        "machine": {"gpu": "H100-SXM", "gpus": 8, "storage_write_gb_s": 1}, **sections,
    }  # fmt: skip
    return complete(worksheet_from_mapping(mapping, "saves"))


def test_weights_and_both_moments() -> None:
    """torchtitan's resumable 8B: 96 GB."""
    assert resumable_bytes(job()) == 12 * EIGHT_BILLION


def test_master_weights_beside_16_bits() -> None:
    made = job(precision={"weights": "bfloat16"}, layout={"strategy": "zero1"})
    assert resumable_bytes(made) == (2 + 4 + 8) * EIGHT_BILLION


def test_adapters_alone() -> None:
    """Rank 16 on query and value of 32 blocks: (4096 + 4096 + 4096 + 1024) * 16 elements each, 12 bytes with the moments."""
    made = job(method={"kind": "lora", "targets": ["q_proj", "v_proj"]}, precision={})
    assert resumable_bytes(made) == 12 * 32 * 16 * (8192 + 5120)


def test_a_pilot_s_size_outranks() -> None:
    assert resumable_bytes(job(measured={"checkpoint_gb": 50})) == 50e9


def test_nodes_write_at_once_but_one_file_comes_from_one() -> None:
    machine = {"gpu": "H100-SXM", "gpus": 8, "nodes": 2, "storage_write_gb_s": 1}
    assert stall_seconds(job(machine=machine)) == Bounds.exact(6 * EIGHT_BILLION / 1e9)
    assert stall_seconds(job(machine=machine, checkpoint={"format": "full"})) == Bounds.exact(12 * EIGHT_BILLION / 1e9)


def test_asynchronous_saves_wait_for_the_copy_to_the_host() -> None:
    """12 GB a GPU over PCIe 5.0: 63 GB/s one way, 0.8 of it; at 0.05 GB/s of storage also for the save before. Replicas copy it all."""
    found = stall_seconds(job(checkpoint={"asynchronous": True}))
    assert found is not None and found.likely == pytest.approx(1.5 * EIGHT_BILLION / (0.8 * 63e9), rel=0.01)
    whole = stall_seconds(job(checkpoint={"asynchronous": True}, layout={"strategy": "ddp"}))
    assert whole is not None and whole.likely == pytest.approx(8 * found.likely)
    slow = stall_seconds(job(checkpoint={"asynchronous": True}, machine={"gpu": "H100-SXM", "gpus": 8, "storage_write_gb_s": 0.05}))
    assert slow is not None and slow.likely == pytest.approx(found.likely + 12 * EIGHT_BILLION / 5e7 - 1800)


def test_the_last_asynchronous_save_is_waited_for() -> None:
    made = job(checkpoint={"asynchronous": True})
    stall, found = stall_seconds(made), checkpoint_seconds(made, Bounds.exact(6000))
    assert stall is not None and found is not None and found.likely == pytest.approx(4 * stall.likely + 12 * EIGHT_BILLION / 1e9)


def test_a_save_each_interval_and_one_at_the_end() -> None:
    """100 minutes with at most 30 at risk: three saves on the way, one at the end."""
    found = checkpoint_seconds(job(), Bounds.exact(6000))
    assert found is not None and found.likely == pytest.approx(4 * 12 * EIGHT_BILLION / 1e9)
    assert checkpoint_seconds(job(machine={"gpu": "H100-SXM", "gpus": 8}), Bounds.exact(6000)) is None
