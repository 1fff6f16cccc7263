"""Older checkpoints go once a new one is complete, never before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from alone import Alone, folders, whole

from fullstep.resume import SaveError, checkpoints, storage

pytestmark = [pytest.mark.real_classes, pytest.mark.filterwarnings("ignore::UserWarning:torch")]
MODES = pytest.mark.parametrize("mode", ["sync", "thread"])


@MODES
@pytest.mark.parametrize("keep", [1, 3])
def test_the_newest_stay(tmp_path: Path, mode: str, keep: int) -> None:
    training = Alone(tmp_path, mode=mode, keep=keep)
    for step in range(1, 5):
        training.saved()
        assert whole(tmp_path) == list(range(step, max(0, step - keep), -1))
    assert len(folders(tmp_path)) == keep


@MODES
@pytest.mark.parametrize("keep", [1, 2])
def test_nothing_goes_before_the_new_one_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, keep: int) -> None:
    """What lies there when the new manifest is about to be written, and right after it."""
    seen: list[tuple[list[int], list[int]]] = []
    plain = storage.write_manifest

    def looking(*given: Any) -> None:
        before = whole(tmp_path)
        plain(*given)
        seen.append((before, whole(tmp_path)))

    monkeypatch.setattr(storage, "write_manifest", looking)
    training = Alone(tmp_path, mode=mode, keep=keep)
    for _ in range(3):
        training.saved()
    assert seen == {1: [([], [1]), ([1], [2, 1]), ([2], [3, 2])], 2: [([], [1]), ([1], [2, 1]), ([2, 1], [3, 2, 1])]}[keep]


@MODES
def test_a_save_that_fails_takes_nothing_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    training = Alone(tmp_path, mode=mode, keep=1)
    first = training.saved()
    training.train()
    with monkeypatch.context() as patch:
        patch.setattr(storage, "write_manifest", _fails)
        with pytest.raises(SaveError):
            training.save()
            training.checkpoints.finish()
    assert folders(tmp_path) == ["step-00000001"]
    again = Alone(tmp_path)
    assert again.resume() == 1 and again.digests() == first


def _fails(*_: Any) -> None:
    raise OSError(5, "Input/output error")


class _Killed(BaseException):
    """As if the process had ended here."""


def test_killed_after_the_new_one_is_complete_and_before_older_ones_went(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next save makes up for it. (With real kills: test_kills.py)"""
    training = Alone(tmp_path, keep=1)
    training.saved()
    training.train()

    def killed(*_: Any) -> None:
        raise _Killed

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "make_room", killed)
        with pytest.raises(_Killed):
            training.save()
    second = training.digests()
    assert whole(tmp_path) == [2, 1]
    again = Alone(tmp_path, keep=1)
    assert again.resume() == 2 and again.digests() == second
    again.saved()
    assert folders(tmp_path) == ["step-00000003"]


def test_what_a_killed_run_left_is_not_written_into_and_goes_later(tmp_path: Path) -> None:
    """An empty folder, one with data and without manifest, and one that is whole, all of the step that is saved again."""
    Alone(tmp_path / "other").saved()
    left = tmp_path / "runs" / "step-00000002"
    left.mkdir(parents=True)
    (left / "__0_0.distcp").write_bytes(b"half")
    (left / ".claimed").touch()
    (tmp_path / "runs" / "step-00000002.1").mkdir()
    training = Alone(tmp_path / "runs")
    first = training.saved()
    assert folders(tmp_path / "runs") == ["step-00000001", "step-00000002", "step-00000002.1"]  # newer ones are of another run
    second = training.saved()
    assert (tmp_path / "runs" / "step-00000002.2" / "fullstep.json").exists()
    assert folders(tmp_path / "runs") == ["step-00000001", "step-00000002.2"]  # superseded, they go
    training.step = 1  # somebody trains step 2 once more: what is whole is not written into either
    training.train()
    training.save()
    assert folders(tmp_path / "runs") == ["step-00000002.2", "step-00000002.3"] and whole(tmp_path / "runs") == [2, 2]
    again = Alone(tmp_path / "runs")
    assert again.resume() == 2 and again.digests() == training.digests() not in (first, second)
    assert again.checkpoints.loaded is not None and again.checkpoints.loaded.folder == "step-00000002.3"


def test_what_something_else_wrote_stays(tmp_path: Path) -> None:
    """Somebody's checkpoints by torch alone, in folders that happen to be called like ours."""
    theirs = tmp_path / "step-00000001"
    theirs.mkdir()
    (theirs / "__0_0.distcp").write_bytes(b"theirs")
    training = Alone(tmp_path, keep=1)
    for _ in range(3):
        training.saved()
    assert folders(tmp_path) == ["step-00000001", "step-00000003"] and (theirs / "__0_0.distcp").read_bytes() == b"theirs"


def test_folders_that_are_not_empty_stay(tmp_path: Path) -> None:
    """Also where there is no plain file in them."""
    theirs = tmp_path / "step-00000001"
    (theirs / "below").mkdir(parents=True)
    linked = tmp_path / "step-00000002"
    linked.mkdir()
    (linked / "data").symlink_to(tmp_path / "elsewhere")
    empty = tmp_path / "step-00000000"
    empty.mkdir()
    training = Alone(tmp_path, keep=1)
    training.train(2)
    training.saved()
    assert folders(tmp_path) == ["step-00000001", "step-00000002", "step-00000003"]


def test_a_damaged_one_does_not_count_among_those_that_are_kept(tmp_path: Path) -> None:
    """Else the last good one would go for it."""
    training = Alone(tmp_path, keep=2)
    first = training.saved()
    training.saved()
    path = tmp_path / "step-00000002" / "__0_0.distcp"
    path.write_bytes(path.read_bytes()[:-1])
    again = Alone(tmp_path, keep=2)
    assert again.resume() == 1
    again.saved()
    assert folders(tmp_path) == ["step-00000001", "step-00000002.1"] and whole(tmp_path) == [2, 1]
    assert again.checkpoints.load(1) is not None and again.digests() == first


def test_at_least_one_is_kept(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="keep = 0: a whole number, at least 1"):
        Alone(tmp_path, keep=0)
