"""Checkpoints for people and programs, by hand."""

from __future__ import annotations

from dataclasses import replace

from fullstep.job import Job
from fullstep.ledger import Answer, Caution, Checkpoint, CheckpointInterval, CheckpointPart, StorageNeed
from fullstep.quantities import Bounds
from fullstep.report.checkpoint_json import checkpoint_as_dict
from fullstep.report.checkpoint_text import checkpoint_lines
from fullstep.report.json import answer_as_dict, open_parts
from fullstep.report.paper import Paper
from fullstep.report.text import answer_text

INTERVAL = CheckpointInterval(
    seconds=1800, lost_at_most_seconds=1800, least_loss_seconds=None, mean_between_failures_seconds=Bounds(1.8e7, 2.3e7, 4.5e8),
    bound_by="unknown",
)  # fmt: skip
NEED = StorageNeed(
    verdict="unknown", write_bytes_per_second_per_node=3.2e8, read_bytes_per_second_per_node=1.1e8, disk_bytes_per_node=3.2e11, sentence=""
)  # fmt: skip
CHECKPOINT = Checkpoint(
    evidence="estimated", container="distributed", contents=(CheckpointPart("weights", 32.4), CheckpointPart("optimizer_states", 64.2)),
    resumable_bytes=96.4e9, files=9, export_bytes=32.1e9, export_files=1, write_bytes_per_second_required=96.4e9 / 300,
    read_bytes_per_second_required=96.4e9 / 900, average_write_bytes_per_second=96.4e9 / 1800, restore_bytes=96.4e9, write_seconds=None,
    stall_seconds=None, restore_seconds=None, interval=INTERVAL, staging_host_bytes=Bounds(0, 0.4, 0.6), kept=2, disk_bytes=321.3e9,
    storage=NEED,
)  # fmt: skip


def text(answer: Answer, checkpoint: Checkpoint | None) -> str:
    return "\n".join(checkpoint_lines(replace(answer, checkpoint=checkpoint), Paper(width=300)))


def test_the_line(answer: Answer) -> None:
    """96.4e9 / 2**30 = 89.8; / 300 s = 0.32 GB/s; / 1800 s = 0.05 GB/s."""
    assert text(answer, CHECKPOINT) == (
        "  Checkpoint     96 GB (89.8 GiB) in 9 files · every 30 min · 0.32 GB/s to write in 5 min, 0.05 GB/s on average · "
        "2 kept: 321 GB of disk with the export of 32 GB · estimated"
    )
    assert text(answer, None) == ""


def test_a_small_one(answer: Answer) -> None:
    """82 MB in 5 minutes: 0.27 MB/s."""
    small = replace(
        CHECKPOINT, resumable_bytes=82e6, write_bytes_per_second_required=82e6 / 300, average_write_bytes_per_second=82e6 / 1800, files=1,
        disk_bytes=273e6, export_bytes=27e6,
    )  # fmt: skip
    assert "82 MB (78.2 MiB) in 1 file · every 30 min · 0.27 MB/s to write in 5 min, 0.05 MB/s on average" in text(answer, small)


def test_storage_that_does_not_suffice_is_said_once(job: Job, answer: Answer) -> None:
    short = replace(CHECKPOINT, storage=replace(NEED, verdict="does_not_suffice", sentence="storage does not suffice: buy 0.33 GB/s"))
    told = replace(answer, checkpoint=short, warnings=(*answer.warnings, Caution("F201", "a checkpoint takes 8 min")))
    report = answer_text(job, told, Paper(width=200))
    assert "storage does not suffice: buy 0.33 GB/s (F201)" in report
    assert report.count("F201") == 1 and "(F011)" in report


def test_failures_that_ask_for_more_saves(answer: Answer) -> None:
    between = Bounds(8000, 11_124, 12_000)
    often = replace(INTERVAL, least_loss_seconds=Bounds(900, 1140, 1300), mean_between_failures_seconds=between, bound_by="failures")
    assert "saving every 19 min would lose least: hardware fails every 3.09 h or so" in text(answer, replace(CHECKPOINT, interval=often))


def test_the_contract_s_object(answer: Answer) -> None:
    document = answer_as_dict(replace(answer, checkpoint=CHECKPOINT))["checkpoint"]
    keys = [
        "evidence", "resumable_bytes", "export_bytes", "files", "write_bytes_per_second_required", "average_write_bytes_per_second",
        "interval_seconds", "staging_host_bytes", "disk_bytes",
    ]  # fmt: skip
    sizes = ["estimated", 96_400_000_000, 32_100_000_000, 9, 321_333_333, 53_555_556, 1800, 0, 321_300_000_000]
    assert [document[key] for key in keys] == sizes
    assert document["contents"] == [{"what": "weights", "bytes": 32}, {"what": "optimizer_states", "bytes": 64}]
    assert document["staging_host_range_bytes"] == {"low": 0, "likely": 0, "high": 1}
    assert document["storage"]["verdict"] == "unknown" and document["interval"]["bound_by"] == "unknown"
    assert checkpoint_as_dict(None) is None


def test_what_is_not_sized_says_why(answer: Answer) -> None:
    assert {part.key: part.why for part in open_parts(answer)}["checkpoint"] == "not part of this answer"
