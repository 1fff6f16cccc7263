"""Checkpoints for people and programs, by hand."""

from __future__ import annotations

from dataclasses import replace

from fullstep.evidence import Assumption
from fullstep.job import Job
from fullstep.ledger import Answer, Caution, Checkpoint, CheckpointInterval, CheckpointPart, StorageNeed
from fullstep.quantities import Bounds
from fullstep.report.checkpoint_json import checkpoint_as_dict
from fullstep.report.checkpoint_text import checkpoint_lines
from fullstep.report.json import answer_as_dict, open_parts
from fullstep.report.paper import Paper
from fullstep.report.text import answer_text

INTERVAL = CheckpointInterval(
    seconds=1800, lost_at_most_seconds=1800, bound_by="work_that_may_be_lost", least_loss_seconds=None, least_loss_is_shorter=None,
    mean_between_failures_seconds=Bounds(1.8e7, 2.3e7, 4.5e8),
)  # fmt: skip
KEYS = ("machine.storage_write_gb_s", "machine.storage_read_gb_s", "machine.disk_gb")
NEED = StorageNeed(
    verdict="unknown", write_bytes_per_second_per_node=96.4e9 / 300, read_bytes_per_second_per_node=96.4e9 / 900,
    disk_bytes_per_node=321.3e9, unstated=KEYS, sentence="",
)  # fmt: skip
CHECKPOINT = Checkpoint(
    evidence="estimated", container="distributed", contents=(CheckpointPart("weights", 32.4), CheckpointPart("optimizer_states", 64.2)),
    resumable_bytes=96.4e9, files=9, export_bytes=32.1e9, export_files=1, write_bytes_per_second_required=96.4e9 / 300,
    read_bytes_per_second_required=96.4e9 / 900, average_write_bytes_per_second=96.4e9 / 1800, restore_bytes=96.4e9, write_seconds=None,
    stall_seconds=None, restore_seconds=None, interval=INTERVAL, staging_host_bytes=Bounds(0, 0.4, 0.6), kept=2, disk_bytes=321.3e9,
    storage=NEED,
)  # fmt: skip


def lines(answer: Answer, checkpoint: Checkpoint | None, *assumed: str) -> list[str]:
    assumptions = tuple(Assumption(key, 1, "default") for key in assumed)
    told = replace(answer, checkpoint=checkpoint, assumptions=assumptions)
    return [line.strip() for line in checkpoint_lines(told, Paper(width=300))]


def test_the_lines(answer: Answer) -> None:
    """96.4e9 / 2**30 = 89.8; / 300 s = 0.3213 GB/s, to be bought 0.322; / 1800 s = 0.0536 GB/s; / 900 s = 0.1071; 3 * 96.4 + 32.1 = 321.3,
    of which 322 have to be there."""
    assert lines(answer, CHECKPOINT) == [
        "Checkpoint     96.4 GB (89.8 GiB) in 9 files · every 30 min · estimated",
        "storage per node: 0.322 GB/s to write in 5 min (0.0536 GB/s on average), 0.108 GB/s to read back in 15 min",
        "disk per node: 322 GB = 2 kept + the one being written + the export of 32.1 GB",
        "not stated: machine.storage_write_gb_s, machine.storage_read_gb_s, machine.disk_gb",
    ]
    assert lines(answer, None) == []


def test_of_four_nodes_each_does_its_part(answer: Answer) -> None:
    """0.3213 / 4 = 0.0803, to be bought 0.0804; on average 0.0536 / 4 = 0.0134."""
    need = replace(NEED, write_bytes_per_second_per_node=96.4e9 / 1200, read_bytes_per_second_per_node=96.4e9 / 3600)
    found = lines(answer, replace(CHECKPOINT, storage=need))[1]
    assert found == "storage per node: 0.0804 GB/s to write in 5 min (0.0134 GB/s on average), 0.0268 GB/s to read back in 15 min"


def test_a_small_one(answer: Answer) -> None:
    """82 MB in 5 minutes: 0.2733 MB/s; in 15: 0.0911."""
    need = replace(NEED, write_bytes_per_second_per_node=82e6 / 300, read_bytes_per_second_per_node=82e6 / 900, disk_bytes_per_node=273e6)
    small = replace(
        CHECKPOINT, resumable_bytes=82e6, write_bytes_per_second_required=82e6 / 300, average_write_bytes_per_second=82e6 / 1800, files=1,
        restore_bytes=82e6, read_bytes_per_second_required=82e6 / 900, disk_bytes=273e6, export_bytes=27e6, storage=need,
    )  # fmt: skip
    first, storage, disk, _ = lines(answer, small)
    assert first == "Checkpoint     82 MB (78.2 MiB) in 1 file · every 30 min · estimated"
    assert storage == "storage per node: 0.274 MB/s to write in 5 min (0.0456 MB/s on average), 0.0912 MB/s to read back in 15 min"
    assert disk == "disk per node: 273 MB = 2 kept + the one being written + the export of 27 MB"


def test_which_keys_have_their_default(answer: Answer) -> None:
    """What is stated is not said again, and other keys decide nothing here."""
    found = lines(answer, CHECKPOINT, "checkpoint.lose_at_most_minutes", "checkpoint.keep", "checkpoint.format")
    assert found[-1] == "by default, set them under [checkpoint]: lose_at_most_minutes, keep"


def test_storage_that_suffices_is_said_with_its_times(answer: Answer) -> None:
    enough = replace(CHECKPOINT, storage=replace(NEED, verdict="suffices", unstated=()), write_seconds=96.4, restore_seconds=48.2)
    assert lines(answer, enough)[-1] == "the stated storage suffices: written in 96.4 s, read back in 48.2 s"
    half = replace(CHECKPOINT, storage=replace(NEED, unstated=KEYS[1:]), write_seconds=96.4)
    assert lines(answer, half)[-1] == (
        "what is stated of storage suffices: written in 96.4 s; not stated: machine.storage_read_gb_s, machine.disk_gb"
    )


def test_storage_that_does_not_suffice_is_said_once(job: Job, answer: Answer) -> None:
    need = replace(NEED, verdict="does_not_suffice", sentence="storage does not suffice: buy 0.33 GB/s", unstated=KEYS[2:])
    short = replace(CHECKPOINT, storage=need, write_seconds=480.0, restore_seconds=90.0)
    told = replace(answer, checkpoint=short, warnings=(*answer.warnings, Caution("F201", "a checkpoint takes 8 min")))
    report = answer_text(job, told, Paper(width=200))
    said = "storage does not suffice: buy 0.33 GB/s (F201); as it is written in 8 min, read back in 90 s; not stated: machine.disk_gb"
    assert said in report
    assert report.count("F201") == 1 and "(F011)" in report


def test_failures_that_ask_for_more_saves(answer: Answer) -> None:
    between = Bounds(8000, 11_124, 12_000)
    often = replace(
        INTERVAL, least_loss_seconds=Bounds(900, 1140, 1300), mean_between_failures_seconds=between, least_loss_is_shorter=True
    )  # fmt: skip
    found = lines(answer, replace(CHECKPOINT, interval=often))
    assert found[1] == "saving every 19 min would lose least: hardware fails every 3.09 h or so"
    seldom = replace(often, least_loss_seconds=Bounds(9000, 11_400, 13_000), least_loss_is_shorter=False)
    assert not any("would lose least" in line for line in lines(answer, replace(CHECKPOINT, interval=seldom)))


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
    assert document["storage"]["verdict"] == "unknown" and document["storage"]["unstated"] == list(KEYS)
    assert document["interval"]["bound_by"] == "work_that_may_be_lost" and document["interval"]["least_loss_is_shorter"] is None
    assert checkpoint_as_dict(None) is None


def test_what_is_not_sized_says_why(answer: Answer) -> None:
    assert {part.key: part.why for part in open_parts(answer)}["checkpoint"] == "not part of this answer"
