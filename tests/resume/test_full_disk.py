"""A disk that is full, read-only, or gone: the save says so, training goes on, and what was saved before comes back."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from alone import Alone, folders, whole
from processes import Nursery

from fullstep.resume import LoadError, SaveError, checkpoints, loading, places, storage

pytestmark = [pytest.mark.real_classes, pytest.mark.filterwarnings("ignore::UserWarning:torch")]
MIB = 1 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    path = tmp_path / "disk"
    path.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(path)], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"only root mounts: {done.stderr.strip()}")
    yield path
    subprocess.run(["mount", "-o", "remount,rw", str(path)], check=True)
    subprocess.run(["umount", str(path)], check=True)


def _ends(save: Callable[[], Any], training: Alone) -> SaveError:
    """The error of a save, or of the wait for it."""
    with pytest.raises(SaveError) as caught:
        save()
        training.checkpoints.finish()
    return caught.value


@pytest.mark.parametrize("mode", ["sync", "thread"])
def test_a_disk_that_is_full(small_disk: Path, mode: str) -> None:
    training = Alone(small_disk / "runs", mode=mode, width=40)  # weights and states: 0.2 MB a checkpoint
    first = training.saved()
    (small_disk / "other").write_bytes(b"x" * (MIB - 4096 * 4 - _used(small_disk)))
    training.train()
    error = _ends(training.save, training)
    assert error.what == f"step 2 was not saved to {small_disk}/runs/step-00000002: No space left on device"
    assert folders(small_disk / "runs") == ["step-00000001"] and whole(small_disk / "runs") == [1]

    (small_disk / "other").unlink()
    third = training.saved()  # training goes on, and saves again
    assert whole(small_disk / "runs") == [3, 1]
    again = Alone(small_disk / "runs", width=40)
    assert again.resume() == 3 and again.digests() == third
    assert again.checkpoints.load(1) is not None and again.digests() == first


def _used(disk: Path) -> int:
    found = os.statvfs(disk)
    return (found.f_blocks - found.f_bfree) * found.f_frsize


@pytest.mark.parametrize("mode", ["sync", "thread"])
@pytest.mark.parametrize("room", [0, 2_000, 3_000, 30_000], ids=lambda room: f"{room} bytes")
def test_a_disk_that_fills_in_the_middle_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, room: int) -> None:
    training = Alone(tmp_path, mode=mode)
    before = training.saved()
    training.train()
    with monkeypatch.context() as patch:
        patch.setattr(storage.DigestedStream, "write", _full_after(room))
        error = _ends(training.save, training)
    assert "step 2 was not saved" in error.what and "No space left on device" in error.what and str(tmp_path) in error.what
    assert folders(tmp_path) == ["step-00000001"]
    again = Alone(tmp_path)
    assert again.resume() == 1 and again.digests() == before


def _full_after(room: int) -> Callable[[Any, Any], int]:
    plain = storage.DigestedStream.write

    def write(stream: storage.DigestedStream, data: Any) -> int:
        if stream.tell() + len(data) > room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return plain(stream, data)

    return write


@pytest.mark.parametrize("mode", ["sync", "thread"])
@pytest.mark.parametrize("name", [".metadata", "manifest"])
def test_a_disk_that_is_full_when_all_data_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, name: str) -> None:
    """The last files are small, and written by one rank alone."""

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    training = Alone(tmp_path, mode=mode)
    before = training.saved()
    training.train()
    with monkeypatch.context() as patch:
        if name == "manifest":
            patch.setattr(places.LocalPlace, "write_whole", full)
        else:
            patch.setattr(storage._DigestedFiles, "rename", full)
        assert "No space left on device" in _ends(training.save, training).what
    assert folders(tmp_path) == ["step-00000001"]
    again = Alone(tmp_path)
    assert again.resume() == 1 and again.digests() == before


@pytest.mark.parametrize("mode", ["sync", "thread"])
def test_a_folder_that_became_read_only(small_disk: Path, mode: str) -> None:
    training = Alone(small_disk / "runs", mode=mode)
    before = training.saved()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    training.train()
    error = _ends(training.save, training)
    assert error.what == f"{small_disk}/runs/step-00000002 cannot be made: Read-only file system"
    again = Alone(small_disk / "runs")
    assert again.resume() == 1 and again.digests() == before


def test_a_folder_that_is_read_only_when_older_ones_should_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The new one is complete, and a training is not ended because an old one stays."""

    def read_only(*_: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    training = Alone(tmp_path, keep=1)
    training.saved()
    monkeypatch.setattr(places.LocalPlace, "remove", read_only)
    second = training.saved()
    assert "step-00000002 is complete, but older ones could not be taken away: Read-only file system" in caplog.text
    assert whole(tmp_path) == [2, 1]
    again = Alone(tmp_path)
    assert again.resume() == 2 and again.digests() == second


@pytest.mark.parametrize("mode", ["sync", "thread"])
def test_a_folder_that_vanishes_during_a_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    training = Alone(tmp_path / "runs", mode=mode)
    before = training.saved()
    training.train()
    plain = storage.write_manifest

    def vanished(*given: Any) -> None:
        shutil.rmtree(tmp_path / "runs" / "step-00000002")
        plain(*given)

    with monkeypatch.context() as patch:
        patch.setattr(storage, "write_manifest", vanished)
        error = _ends(training.save, training)
    assert "step 2 was not saved" in error.what and "No such file or directory" in error.what
    assert folders(tmp_path / "runs") == ["step-00000001"]  # nor was it made again behind everybody's back
    again = Alone(tmp_path / "runs")
    assert again.resume() == 1 and again.digests() == before


@pytest.mark.parametrize("mode", ["sync", "thread"])
def test_a_folder_that_vanishes_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    """Torch would make it again: on a machine whose disk is gone, somewhere else than where it was claimed."""
    plain = checkpoints.claim_folder

    def vanished(place: Any, step: int) -> str:
        name = plain(place, step)
        shutil.rmtree(place.path(name))
        return name

    monkeypatch.setattr(checkpoints, "claim_folder", vanished)
    training = Alone(tmp_path / "runs", mode=mode)
    training.train()
    error = _ends(training.save, training)
    assert "step 1 was not saved" in error.what and "No such file or directory" in error.what
    assert folders(tmp_path / "runs") == []


def test_a_place_that_vanishes_is_made_anew_and_that_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    training = Alone(tmp_path / "runs")
    training.saved()
    shutil.rmtree(tmp_path / "runs")
    assert "has vanished" not in caplog.text
    second = training.saved()
    assert f"{tmp_path}/runs has vanished, and with it what was in it" in caplog.text
    again = Alone(tmp_path / "runs")
    assert again.resume() == 2 and again.digests() == second


def test_a_checkpoint_that_vanishes_between_its_check_and_its_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training = Alone(tmp_path)
    training.saved()
    plain = loading.metadata_of

    def vanished(*given: Any) -> Any:
        shutil.rmtree(tmp_path / "step-00000001")
        return plain(*given)

    monkeypatch.setattr(loading, "metadata_of", vanished)
    again = Alone(tmp_path)
    before = again.digests()
    with pytest.raises(LoadError, match=r"has no metadata that can be read: No such file.*Nothing was changed"):
        again.resume()
    assert again.digests() == before


def test_a_place_that_is_not_there_has_no_checkpoints_and_one_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    assert Alone(tmp_path / "nowhere").resume() == 0
    (tmp_path / "file").touch()
    with pytest.raises(LoadError, match="cannot be looked into: Not a directory"):
        Alone(tmp_path / "file").resume()
    with pytest.raises(SaveError, match="cannot be made: "):
        Alone(tmp_path / "file").save()


@pytest.mark.parametrize(("mode", "on"), [("sync", [1]), ("sync", [0, 1]), ("thread", [0]), ("process", [1])])
def test_the_disk_of_some_ranks_is_full(tmp_path: Path, nursery: Nursery, mode: str, on: list[int]) -> None:
    faults = {"full_after": 2000, "on": on, "while": str(tmp_path / "full")}
    given = (tmp_path / "runs", "--mode", mode, "--wrap", "ddp", "--steps", 6, "--fault-at", 4, "--go-on", "--keep", 3)
    training = nursery.start(*given, faults=faults)
    assert training.ended() == [0, 0], training.text()
    failed = [event for event in training.events() if "failed" in event]
    assert [event["step"] for event in failed] == [4, 4] and {event["rank"] for event in failed} == {0, 1}
    for event in failed:  # each rank knows which of them it was, and where
        who = ("rank 1: " if on == [1] else "rank 0: " if on == [0] else "") + "No space left on device: a file of the checkpoint"
        assert f"step 4 was not saved to {tmp_path}/runs/step-00000004: {who}. Training was not touched" in event["failed"]
    assert whole(tmp_path / "runs") == [6, 2] and folders(tmp_path / "runs") == ["step-00000002", "step-00000006"]
    digests = {event["step"]: event["digest"] for event in training.events() if "digest" in event}

    again = nursery.start(tmp_path / "runs", "--wrap", "ddp", "--steps", 6)
    assert again.until(lambda event: "digest" in event) == {"step": 6, "digest": digests[6]}
    assert again.ended() == [0, 0]
