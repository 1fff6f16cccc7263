"""How long saves take, how often they come, how fast storage has to be: arithmetic, and figures that others published."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fullstep.job import Job
from fullstep.physics.checkpointing import checkpoint_seconds, interval_seconds, resumable_bytes, stall_seconds, writing_seconds
from fullstep.physics.checkpointing.pace import bytes_per_second_required, restore_bytes, restoring_seconds
from fullstep.quantities import Bounds

Make = Callable[..., Job]
EIGHT_BILLION = 8_030_261_248
NEAR = 1e-3
"""what containers add to a model of this size"""


def test_a_pilot_s_size_outranks(job: Make) -> None:
    assert resumable_bytes(job(measured={"checkpoint_gb": 50})) == 50e9


def test_the_worked_example_of_600_gb() -> None:
    """600 GB in 5 minutes: 2 GB/s."""
    assert bytes_per_second_required(600e9, 5) == 2e9


def test_seventy_billion_in_a_minute_and_every_half_hour() -> None:
    """Known for 846.6 GB (12 bytes of 70.55e9 parameters): 14.1 GB/s, and 0.47 GB/s on average."""
    assert bytes_per_second_required(846.6e9, 1) == pytest.approx(14.1e9, rel=0.001)
    assert bytes_per_second_required(846.6e9, 30) == pytest.approx(0.47e9, rel=0.001)


def test_nodes_write_at_once_but_one_file_comes_from_one(job: Make) -> None:
    machine = {"gpu": "H100-SXM", "gpus": 8, "nodes": 2, "storage_write_gb_s": 1}
    assert stall_seconds(job(machine=machine)) == Bounds.exact(pytest.approx(6 * EIGHT_BILLION / 1e9, rel=NEAR))
    full = job(machine=machine, checkpoint={"format": "full"}, step={"framework": "torch"})
    assert stall_seconds(full) == Bounds.exact(pytest.approx(12 * EIGHT_BILLION / 1e9, rel=NEAR))


def test_the_trainer_writes_whole_replicas_from_one_node(job: Make) -> None:
    """Trainer._save_checkpoint saves on the process with should_save alone; torch.distributed.checkpoint deals replicas out."""
    machine = {"gpu": "H100-SXM", "gpus": 8, "nodes": 2, "storage_write_gb_s": 1}
    trainer, torch = (job(machine=machine, layout={"strategy": "ddp"}, step={"framework": name}) for name in ("transformers", "torch"))
    assert writing_seconds(trainer) == pytest.approx(12 * EIGHT_BILLION / 1e9, rel=NEAR)
    assert writing_seconds(torch) == pytest.approx(6 * EIGHT_BILLION / 1e9, rel=NEAR)


def test_asynchronous_saves_wait_for_the_copy_to_the_host(job: Make) -> None:
    """12 GB a GPU over PCIe 5.0: 63 GB/s one way, 0.8 of it. Replicas copy it all."""
    found = stall_seconds(job(checkpoint={"asynchronous": True}))
    assert found is not None and found.likely == pytest.approx(1.5 * EIGHT_BILLION / (0.8 * 63e9), rel=0.01)
    whole = stall_seconds(job(checkpoint={"asynchronous": True}, layout={"strategy": "ddp"}))
    assert whole is not None and whole.likely == pytest.approx(8 * found.likely)


def test_the_high_bound_of_an_asynchronous_stall(job: Make) -> None:
    """Memory taken anew at each save: 635 MB in 0.83 s, 0.77 GB/s. With threads, steps beside the upload are slower by up to
    1 - 70/148 of it (github.com/InternLM/InternEvo/issues/65); with processes they are not."""
    staged, upload = 1.5 * EIGHT_BILLION, 12 * EIGHT_BILLION / 1e9
    thread, process = (stall_seconds(job(checkpoint={"asynchronous": True, "async_mode": mode})) for mode in ("thread", "process"))
    assert process is not None and process.high == pytest.approx(staged / 0.77e9)
    assert thread is not None and thread.high == pytest.approx(staged / 0.77e9 + 0.53 * upload, rel=NEAR)


def test_the_newest_asynchronous_save_is_older_by_an_upload(job: Make) -> None:
    """96.4 GB at 1 GB/s: 96 s of 30 minutes; at 0.05 GB/s 32 minutes, which is how far apart saves have to be then."""
    assert interval_seconds(job()) == 1800
    assert interval_seconds(job(checkpoint={"asynchronous": True})) == pytest.approx(1800 - 12 * EIGHT_BILLION / 1e9, rel=NEAR)
    slow = job(checkpoint={"asynchronous": True}, machine={"gpu": "H100-SXM", "gpus": 8, "storage_write_gb_s": 0.05})
    assert interval_seconds(slow) == pytest.approx(12 * EIGHT_BILLION / 5e7, rel=NEAR)
    unknown = job(checkpoint={"asynchronous": True}, machine={"gpu": "H100-SXM", "gpus": 8})
    assert interval_seconds(unknown) == 1800


def test_the_last_asynchronous_save_is_waited_for(job: Make) -> None:
    """6,000 s with a save each 1,704: three on the way, one at the end."""
    made = job(checkpoint={"asynchronous": True})
    stall, found = stall_seconds(made), checkpoint_seconds(made, Bounds.exact(6000))
    assert stall is not None and found is not None
    assert found.likely == pytest.approx(4 * stall.likely + 12 * EIGHT_BILLION / 1e9, rel=NEAR)


def test_a_save_each_interval_and_one_at_the_end(job: Make) -> None:
    """100 minutes with at most 30 at risk: three saves on the way, one at the end."""
    found = checkpoint_seconds(job(), Bounds.exact(6000))
    assert found is not None and found.likely == pytest.approx(4 * 12 * EIGHT_BILLION / 1e9, rel=NEAR)
    assert checkpoint_seconds(job(machine={"gpu": "H100-SXM", "gpus": 8}), Bounds.exact(6000)) is None


def test_replicas_read_it_all(job: Make) -> None:
    """A load is not deduplicated (github.com/pytorch/torchtitan/issues/4035): DDP reads it eight times, HSDP once per node."""
    plain, ddp = job(step={"framework": "torch"}), job(layout={"strategy": "ddp"}, step={"framework": "torch"})
    assert restore_bytes(plain) == resumable_bytes(plain)
    assert restore_bytes(ddp) == 8 * resumable_bytes(ddp)
    hybrid = job(layout={"strategy": "hsdp"}, machine={"gpu": "H100-SXM", "gpus": 8, "nodes": 4})
    assert restore_bytes(hybrid) == 4 * resumable_bytes(hybrid)


def test_a_restart_reads_from_all_nodes(job: Make) -> None:
    """96.4 GB over two nodes at 2 GB/s each: 24 s; every node of HSDP reads all of it."""
    machine = {"gpu": "H100-SXM", "gpus": 8, "nodes": 2, "storage_read_gb_s": 2}
    assert restoring_seconds(job(machine=machine)) == pytest.approx(6 * EIGHT_BILLION / 2e9, rel=NEAR)
    assert restoring_seconds(job(machine=machine, layout={"strategy": "hsdp"})) == pytest.approx(12 * EIGHT_BILLION / 2e9, rel=NEAR)
    assert restoring_seconds(job()) is None
