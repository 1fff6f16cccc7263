"""One save: what it reports, what it leaves alone, and what it does when it is interrupted."""

from __future__ import annotations

import json
import os
import threading
import warnings
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import torch
from alone import Alone, folders, whole
from torch.utils.serialization import config

from fullstep.resume import Checkpoints, LoadError, SaveError, read_manifest, storage
from fullstep.resume.places import LocalPlace
from fullstep.resume.ranks import Ranks
from fullstep.resume.saving import Saver

pytestmark = [pytest.mark.real_classes, pytest.mark.filterwarnings("ignore::UserWarning:torch")]
MODES = pytest.mark.parametrize("mode", ["sync", "thread"])


@MODES
def test_what_is_told_of_a_save_and_of_a_load(tmp_path: Path, mode: str) -> None:
    training = Alone(tmp_path, mode=mode)
    training.train()
    saved = training.checkpoints.save(1, note={"loss": 3.5})
    assert (saved.step, saved.folder, saved.mode, saved.published) == (1, "step-00000001", mode, mode == "sync")
    done = training.checkpoints.finish()
    assert done is (None if mode == "sync" else saved) and saved.published
    files = [path for path in (tmp_path / "step-00000001").iterdir() if path.name != ".claimed"]
    manifest = read_manifest(LocalPlace(tmp_path), "step-00000001")
    assert saved.files == len(files) == 3
    assert saved.bytes == manifest.bytes == sum(path.stat().st_size for path in files if path.name != "fullstep.json")
    assert manifest.parts == ("model", "optimizer", "rng", "loader", "scheduler") and manifest.note == {"loss": 3.5} and manifest.ranks == 1
    assert manifest.versions["torch"] == torch.__version__
    loaded = Alone(tmp_path).checkpoints.load()
    assert loaded is not None
    assert (loaded.step, loaded.folder, loaded.bytes, loaded.files, loaded.ranks) == (1, "step-00000001", saved.bytes, 3, 1)
    assert loaded.rng == "restored" and loaded.skipped == ()
    for seconds in (saved.state_seconds, saved.stall_seconds, saved.write_seconds, loaded.verify_seconds, loaded.load_seconds):
        assert 0 < seconds < 60
    assert saved.digest_seconds <= saved.write_seconds and saved.state_seconds <= saved.stall_seconds


def test_a_note_that_is_no_json(tmp_path: Path) -> None:
    training = Alone(tmp_path)
    with pytest.raises(ValueError, match=r"note: .*not JSON serializable"):
        training.checkpoints.save(1, note={"model": training.model})
    assert folders(tmp_path) == []  # nothing was begun


@MODES
@pytest.mark.filterwarnings("error")
def test_no_warnings_of_torch(tmp_path: Path, mode: str) -> None:
    """It says with each save and load of one process that it takes this for one."""
    training = Alone(tmp_path, mode=mode)
    training.saved()
    assert Alone(tmp_path).resume() == 1
    with pytest.warns(UserWarning, match="mine"):
        warnings.warn("mine", stacklevel=1)


@MODES
def test_what_torch_is_told_for_a_save_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    seen: list[bool] = []
    plain = storage.DigestedStream.write

    def write(stream: Any, data: Any) -> int:
        seen.append(config.save.compute_crc32)
        return plain(stream, data)

    monkeypatch.setattr(storage.DigestedStream, "write", write)
    assert config.save.compute_crc32
    training = Alone(tmp_path, mode=mode)
    training.saved()
    assert config.save.compute_crc32 and not any(seen[:-10])
    with storage._WITHOUT_SUMS:
        with storage._WITHOUT_SUMS:
            assert not config.save.compute_crc32
        assert not config.save.compute_crc32
    assert config.save.compute_crc32


def test_an_interrupted_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C ends the training: torch would make an error of the save of it."""
    training = Alone(tmp_path)
    first = training.saved()
    training.train()

    def interrupted(*_: Any) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(storage.DigestedStream, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            training.save()
    assert folders(tmp_path) == ["step-00000001"]
    again = Alone(tmp_path)
    assert again.resume() == 1 and again.digests() == first


def test_an_interrupted_wait_can_be_taken_up_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training = Alone(tmp_path, mode="thread")
    training.train()
    gate = threading.Event()
    plain = storage.write_manifest

    def publish(*given: Any) -> None:
        assert gate.wait(60.0)
        plain(*given)

    monkeypatch.setattr(storage, "write_manifest", publish)
    training.save()
    upload = training.checkpoints._saver._upload
    assert upload is not None
    monkeypatch.setattr(upload.future, "exception", lambda: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        training.checkpoints.finish()
    monkeypatch.delattr(upload.future, "exception")
    gate.set()
    saved = training.checkpoints.finish()
    assert saved is not None and saved.published and whole(tmp_path) == [1]


def test_one_that_was_published_before_a_rank_was_lost_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training = Alone(tmp_path)
    training.train()
    plain = storage.write_manifest

    def publish(*given: Any) -> None:
        plain(*given)
        raise RuntimeError("Connection closed by peer")

    monkeypatch.setattr(storage, "write_manifest", publish)
    with pytest.raises(SaveError, match=r"step 1 is complete in .*, but not every rank learned of it: Connection closed by peer"):
        training.save()
    assert whole(tmp_path) == [1]


@MODES
def test_files_and_memory_are_given_back(tmp_path: Path, mode: str) -> None:
    training = Alone(tmp_path, mode=mode)
    training.saved()
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names alone
    for _ in range(3):
        training.saved()
        training.checkpoints.load()
    assert len(os.listdir("/proc/self/fd")) <= before  # noqa: PTH208
    training.checkpoints.close()
    assert training.checkpoints._saver._stager is None
    training.saved()  # and it can be used again
    assert whole(tmp_path)[0] == training.step


def test_two_at_once_in_folders_of_their_own(tmp_path: Path) -> None:
    """The best and the last, say."""
    training = Alone(tmp_path / "last", mode="thread")
    best = Checkpoints(tmp_path / "best", model=training.model, mode="thread", signals=())
    for step in (1, 2):
        training.train()
        training.save()
        best.save(step)
    training.checkpoints.finish()
    best.finish()
    assert whole(tmp_path / "last") == whole(tmp_path / "best") == [2, 1]
    with pytest.raises(LoadError, match="is not in it"):
        Alone(tmp_path / "best").resume()


def test_those_that_share_a_saving_process_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch has one for each trainer: asked twice at once, it would answer one with what it did for the other."""
    uploading: Future[Any] = Future()
    monkeypatch.setattr(Saver, "_in_process", uploading)
    other, went_on = Saver(LocalPlace(tmp_path), "process", None, Ranks(None)), threading.Event()
    thread = threading.Thread(target=lambda: (other._let_others_end(), went_on.set()))
    thread.start()
    assert not went_on.wait(0.1)
    uploading.set_exception(RuntimeError("which is told to whoever began it"))
    thread.join(60.0)
    assert went_on.is_set()


def test_the_manifest_is_read_by_people(tmp_path: Path) -> None:
    Alone(tmp_path).saved()
    text = json.loads((tmp_path / "step-00000001" / "fullstep.json").read_text(encoding="utf-8"))
    assert text["kind"] == "fullstep checkpoint" and set(text["files"]) == {".metadata", "__0_0.distcp"}
