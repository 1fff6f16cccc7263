"""One rank fails, or is lost, while checkpoints are saved or loaded: no other waits for it, and what was saved before comes back."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from alone import folders, whole
from processes import Nursery, Training

pytestmark = [pytest.mark.real_classes]


def _digests(training: Training) -> dict[int, str]:
    return {event["step"]: event["digest"] for event in training.events() if "digest" in event}


def _resumes(nursery: Nursery, folder: Path, step: int, digest: str) -> None:
    again = nursery.start(folder, "--wrap", "ddp", "--steps", step)
    assert again.until(lambda event: "digest" in event) == {"step": step, "digest": digest}
    assert again.ended() == [0, 0], again.text()


@pytest.mark.parametrize(
    ("mode", "method", "on"),
    [("sync", "to_save", 1), ("thread", "to_save", 0), ("thread", "stage", 1), ("thread", "stage", 0), ("process", "stage", 1)],
)
def test_a_rank_whose_part_cannot_be_had(tmp_path: Path, nursery: Nursery, mode: str, method: str, on: int) -> None:
    """The others learn of it before they write anything, and the next save is as usual."""
    given = (tmp_path / "runs", "--mode", mode, "--wrap", "ddp", "--steps", 6, "--keep", 3, "--fault-at", 4, "--go-on")
    training = nursery.start(*given, faults={"raises_in": method, "on": [on], "while": str(tmp_path / "now")})
    assert training.ended() == [0, 0], training.text()
    failed = {event["rank"]: event["failed"] for event in training.events() if "failed" in event}
    why = f"rank {on}: ValueError: a part of this rank cannot be had. Training was not touched"
    for rank in (0, 1):
        assert f"step 4 was not saved to {tmp_path}/runs/step-00000004: {why}" in failed[rank]
    assert whole(tmp_path / "runs") == [6, 2] and folders(tmp_path / "runs") == ["step-00000002", "step-00000006"]
    _resumes(nursery, tmp_path / "runs", 6, _digests(training)[6])


def test_a_rank_that_cannot_load(tmp_path: Path, nursery: Nursery) -> None:
    first = nursery.start(tmp_path / "runs", "--wrap", "ddp", "--steps", 2)
    assert first.ended() == [0, 0]
    training = nursery.start(tmp_path / "runs", "--wrap", "ddp", "--steps", 2, faults={"raises_in": "to_load", "on": [1]})
    assert training.ended() == [1, 1]
    assert training.text().count("LoadError: rank 1: ValueError: a part of this rank cannot be had") == 2


def test_a_rank_that_dies_in_a_save(tmp_path: Path, nursery: Nursery) -> None:
    """Without a launcher that would end the others: they get an error at once, not after a timeout of half an hour."""
    given = (tmp_path / "runs", "--wrap", "ddp", "--steps", 6, "--fault-at", 4)
    training = nursery.start(*given, faults={"dies_after": 2000, "on": [1], "while": str(tmp_path / "now")})
    assert training.ended() == [1, -signal.SIGKILL], training.text()
    (failed,) = [event["failed"] for event in training.events() if "failed" in event]
    assert f"step 4 was not saved to {tmp_path}/runs/step-00000004: " in failed and "onnection" in failed
    assert whole(tmp_path / "runs") == [2] and folders(tmp_path / "runs") == ["step-00000002"]
    _resumes(nursery, tmp_path / "runs", 2, _digests(training)[2])


def test_a_rank_that_dies_while_others_write_beside_training(tmp_path: Path, nursery: Nursery) -> None:
    """Training itself fails, or the save: whichever asks the lost rank first. No rank stays."""
    given = (tmp_path / "runs", "--wrap", "ddp", "--mode", "thread", "--steps", 6, "--fault-at", 4)
    training = nursery.start(*given, faults={"dies_after": 2000, "on": [0], "while": str(tmp_path / "now")})
    assert training.ended() == [-signal.SIGKILL, 1], training.text()
    assert whole(tmp_path / "runs") == [2]
    _resumes(nursery, tmp_path / "runs", 2, _digests(training)[2])


@pytest.mark.parametrize("on", [0, 1])
def test_a_saving_process_that_dies(tmp_path: Path, nursery: Nursery, on: int) -> None:
    """The trainers live, are told, and save again by new processes."""
    given = (tmp_path / "runs", "--mode", "process", "--wrap", "ddp", "--steps", 6, "--keep", 3, "--fault-at", 4, "--go-on")
    training = nursery.start(*given, faults={"dies_after": 2000, "on": [on], "while": str(tmp_path / "now")})
    assert training.ended() == [0, 0], training.text()
    failed = {event["rank"]: event["failed"] for event in training.events() if "failed" in event}
    assert set(failed) == {0, 1}
    assert all(f"step 4 was not saved to {tmp_path}/runs/step-00000004" in each for each in failed.values())
    assert f"rank {on}: Checkpoint background process is dead" in failed[0]
    assert whole(tmp_path / "runs") == [6, 2]
    nursery.wait_for_all()
