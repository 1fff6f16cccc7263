"""Checkpoints judged: storage that suffices or not, what to buy, and how often to save."""

from __future__ import annotations

from typing import Any

import pytest

from fullstep.cost.interruption import daly_interval_seconds
from fullstep.job import Job, complete, worksheet_from_mapping
from fullstep.plan.checkpoints import checkpoint_cautions, size_checkpoint

EIGHT_BILLION = 8_030_261_248
SIZE = 12 * EIGHT_BILLION
"""of a checkpoint, without what its container adds: below a thousandth"""
NEAR = 1e-3


def job(machine: dict[str, Any] | None = None, **sections: Any) -> Job:
    stated = {key: value for key, value in {"gpu": "H100-SXM", "gpus": 8, **(machine or {})}.items() if value is not None}
    mapping = {
        "model": {"name": "meta-llama/Llama-3.1-8B"}, "precision": {"weights": "float32"}, "step": {"framework": "torchtitan"},
        "machine": stated, **sections,
    }  # fmt: skip
    return complete(worksheet_from_mapping(mapping, "saves"))


def codes(made: Job) -> list[str]:
    return [caution.code for caution in checkpoint_cautions(made, size_checkpoint(made))]


def test_the_line_of_the_design() -> None:
    """96 GB, 0.32 GB/s to write in 5 minutes, 0.05 on average, two kept and one being written 289 GB, and 32 GB of export."""
    found = size_checkpoint(job())
    assert found.evidence == "estimated" and found.files == 9
    assert found.resumable_bytes == pytest.approx(SIZE, rel=NEAR) and found.predicted_bytes == found.resumable_bytes
    assert found.write_bytes_per_second_required == pytest.approx(SIZE / 300, rel=NEAR)
    assert found.average_write_bytes_per_second == pytest.approx(SIZE / 1800, rel=NEAR)
    assert found.read_bytes_per_second_required == pytest.approx(SIZE / 900, rel=NEAR)
    assert found.export_bytes == 4 * EIGHT_BILLION
    assert found.disk_bytes == pytest.approx(3 * SIZE + 4 * EIGHT_BILLION, rel=NEAR)
    assert found.interval.seconds == found.interval.lost_at_most_seconds == 1800
    assert (found.write_seconds, found.stall_seconds, found.restore_seconds) == (None, None, None)
    assert found.storage.verdict == "unknown" and found.storage.sentence == ""


def test_a_pilot_s_size_counts() -> None:
    """600 GB in 5 minutes: 2 GB/s. What it holds stays as predicted."""
    found = size_checkpoint(job(measured={"checkpoint_gb": 600}))
    assert (found.evidence, found.resumable_bytes, found.write_bytes_per_second_required) == ("measured", 600e9, 2e9)
    assert found.predicted_bytes == pytest.approx(SIZE, rel=NEAR)


def test_storage_that_suffices() -> None:
    made = job({"storage_write_gb_s": 1, "storage_read_gb_s": 1, "disk_gb": 400})
    need = size_checkpoint(made).storage
    assert (need.verdict, need.unstated) == ("suffices", ()) and codes(made) == []


def test_what_is_not_stated_is_named() -> None:
    need = size_checkpoint(job({"storage_read_gb_s": 1})).storage
    assert (need.verdict, need.unstated) == ("unknown", ("machine.storage_write_gb_s", "machine.disk_gb"))


@pytest.mark.parametrize(
    ("machine", "code", "words"),
    [
        ({"storage_write_gb_s": 0.2}, "F201", "0.322 GB/s to write 96.4 GB in 5 min (0.2 GB/s there)"),
        ({"storage_read_gb_s": 0.1}, "F202", "0.108 GB/s to read 96.4 GB in 15 min (0.1 GB/s there)"),
        ({"disk_gb": 300}, "F203", "322 GB of disk for 2 checkpoints, the one being written and the export (300 GB there)"),
    ],
)
def test_what_is_short_and_what_to_buy(machine: dict[str, Any], code: str, words: str) -> None:
    made = job(machine)
    need = size_checkpoint(made).storage
    assert need.verdict == "does_not_suffice" and words in need.sentence
    assert codes(made) == [code]


def test_nodes_share_the_work() -> None:
    """Four nodes: a quarter of the writing, of the reading and of the checkpoints each, and the export on one of them."""
    need = size_checkpoint(job({"nodes": 4})).storage
    assert need.write_bytes_per_second_per_node == pytest.approx(SIZE / 300 / 4, rel=2 * NEAR)
    assert need.read_bytes_per_second_per_node == pytest.approx(SIZE / 900 / 4, rel=2 * NEAR)
    assert need.disk_bytes_per_node == pytest.approx(3 * SIZE / 4 + 4 * EIGHT_BILLION, rel=2 * NEAR)


def test_one_file_is_one_node_s_work() -> None:
    need = size_checkpoint(job({"nodes": 4}, checkpoint={"format": "full"})).storage
    assert need.write_bytes_per_second_per_node == pytest.approx(SIZE / 300, rel=NEAR)


def test_asynchronous_uploads_that_take_too_long() -> None:
    """96.4 GB at 0.1 GB/s: 964 s. Saves 964 s apart, and up to 1,928 s of work lost, where 1,800 are wanted. At 0.2: 482 s, 1,318 apart."""
    slow, fast = (job({"storage_write_gb_s": rate}, checkpoint={"asynchronous": True}) for rate in (0.1, 0.2))
    assert "F204" in codes(slow) and "F204" not in codes(fast)
    assert size_checkpoint(slow).interval.lost_at_most_seconds == pytest.approx(2 * SIZE / 1e8, rel=NEAR)
    assert size_checkpoint(fast).interval.lost_at_most_seconds == pytest.approx(1800)
    assert (size_checkpoint(slow).interval.bound_by, size_checkpoint(fast).interval.bound_by) == ("upload", "work_that_may_be_lost")


def test_what_an_upload_of_unknown_time_costs_is_not_known() -> None:
    """The newest whole checkpoint is older by the time of the upload, which nobody stated. A synchronous save has none."""
    found = size_checkpoint(job(checkpoint={"asynchronous": True})).interval
    assert (found.seconds, found.lost_at_most_seconds, found.bound_by) == (1800, None, "unknown")
    found = size_checkpoint(job()).interval
    assert (found.seconds, found.lost_at_most_seconds, found.bound_by) == (1800, 1800, "work_that_may_be_lost")


def test_the_work_that_may_be_lost_binds_before_hardware_fails() -> None:
    """Llama 3 405B: 419 failures in 54 days on 16,384 GPUs, 50,677 GPU hours each: 8 GPUs 6,338 h, 16 GPUs 3,170 h. Young for a save of
    20 s on 16 GPUs: sqrt(2 * 20 s * 3,170 h) = 5.9 h."""
    found = size_checkpoint(job({"nodes": 2, "storage_write_gb_s": SIZE / 1e9 / 40})).interval
    assert found.mean_between_failures_seconds.likely / 3600 == pytest.approx(3170, rel=0.001)
    assert found.least_loss_seconds is not None and found.least_loss_seconds.likely / 3600 == pytest.approx(5.9, rel=0.01)
    assert found.bound_by == "work_that_may_be_lost" and found.least_loss_is_shorter is False


def test_saving_more_often_would_lose_less_on_many_gpus() -> None:
    """16,384 GPUs fail every 3.09 h; a save of a minute loses least every sqrt(2 * 60 * 11,138) - 60 + ... = 19 minutes."""
    found = size_checkpoint(job({"nodes": 2048, "storage_write_gb_s": SIZE / 1e9 / 60 / 2048}))
    assert found.interval.least_loss_is_shorter and found.stall_seconds is not None
    assert (found.interval.bound_by, found.interval.seconds, found.interval.lost_at_most_seconds) == ("work_that_may_be_lost", 1800, 1800)
    between = found.interval.mean_between_failures_seconds.likely
    assert between / 3600 == pytest.approx(3.09, rel=0.005)
    assert found.interval.least_loss_seconds is not None
    assert found.interval.least_loss_seconds.likely == pytest.approx(daly_interval_seconds(found.stall_seconds.likely, between))


def test_nothing_is_said_of_failures_where_a_save_is_not_timed() -> None:
    interval = size_checkpoint(job()).interval
    assert (interval.least_loss_seconds, interval.least_loss_is_shorter) == (None, None)


def test_a_stall_that_is_not_known_has_no_best_interval() -> None:
    """Without a card the copy to the host is not timed: likely nothing."""
    interval = size_checkpoint(job({"gpu": None, "storage_write_gb_s": 1}, checkpoint={"asynchronous": True})).interval
    assert (interval.least_loss_seconds, interval.least_loss_is_shorter) == (None, None)


def test_the_form_can_be_asked_for() -> None:
    """The Trainer's folder of whole replicas, and the same saved by a loop of one's own: a file by rank and .metadata."""
    made = job(step={"framework": "transformers"}, layout={"strategy": "ddp"})
    trainer, own = size_checkpoint(made), size_checkpoint(made, "distributed")
    assert (trainer.container, own.container) == ("trainer", "distributed")
    assert own.files == 9 and own.staging_host_bytes.likely == 0 < trainer.staging_host_bytes.likely
    assert {part.what for part in own.contents} == {"weights", "optimizer_states", "rng", "scheduler", "data_position", "container"}


@pytest.mark.parametrize(
    ("sections", "gigabytes", "files", "host_gigabytes"),
    [
        ({"precision": {"weights": "float32"}, "step": {"framework": "torchtitan"}}, 96.4, 9, 0),
        ({"precision": {"weights": "float32"}}, 96.4, 28, 64),
        ({"precision": {"weights": "float32"}, "checkpoint": {"format": "full"}}, 128, 16, 64),
        ({"layout": {"strategy": "ddp"}}, 48.2, 15, 16),
        ({"layout": {"strategy": "ddp"}, "optimizer": {"name": "adamw_8bit"}}, 32.4, 15, 16),
        ({"layout": {"strategy": "zero2"}, "step": {"framework": "deepspeed"}}, 112, 11, 0),
        ({"layout": {"strategy": "zero2"}}, 128, 25, 128),
        ({"layout": {"strategy": "zero3"}}, 96.4, 31, 0),
        ({"layout": {"strategy": "ddp"}, "method": {"kind": "lora", "targets": "all-linear"}}, 0.50, 15, 0.17),
        ({"layout": {"strategy": "zero2"}, "method": {"kind": "lora"}, "step": {"framework": "deepspeed"}}, 16.1, 11, 0),
    ],
)
def test_the_tables_of_the_page(sections: dict[str, Any], gigabytes: float, files: int, host_gigabytes: float) -> None:
    """docs/checkpoints.md: Llama-3.1-8B on eight GPUs."""
    mapping = {"model": {"name": "meta-llama/Llama-3.1-8B"}, "machine": {"gpu": "H100-SXM", "gpus": 8}, **sections}
    found = size_checkpoint(complete(worksheet_from_mapping(mapping, "page")))
    assert found.resumable_bytes / 1e9 == pytest.approx(gigabytes, rel=0.01) and found.files == files
    assert found.staging_host_bytes.likely / 1e9 == pytest.approx(host_gigabytes, rel=0.02)
