"""Damaged files: found before training goes on and before anything is unpickled; the checkpoint before is taken, and why is told."""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch.distributed.checkpoint as dcp
from alone import Alone, folders
from processes import Nursery

from fullstep.resume import LoadError
from fullstep.resume.places import LocalPlace

pytestmark = [pytest.mark.real_classes, pytest.mark.filterwarnings("ignore::UserWarning:torch")]
MANIFEST = "fullstep.json"
DATA = "__0_0.distcp"
FILES = [DATA, ".metadata", MANIFEST]


def _flipped(path: Path, at: float = 0.5) -> None:
    data = bytearray(path.read_bytes())
    data[int(at * len(data))] ^= 1
    path.write_bytes(data)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _emptied(path: Path) -> None:
    path.write_bytes(b"")


def _longer(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def _zeroed(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2] + bytes(len(data) - len(data) // 2))


DAMAGES: list[Callable[[Path], None]] = [_flipped, _cut, _emptied, _longer, _zeroed, Path.unlink]
WHY = {
    "_flipped": f"{DATA} has other bytes than were written", "_zeroed": f"{DATA} has other bytes than were written",
    "_cut": f"{DATA} has ", "_longer": f"{DATA} has ", "_emptied": f"{DATA} has 0 bytes and was written with ",
    "unlink": f"{DATA} is missing",
}  # fmt: skip


Saved = tuple[Path, list[dict[str, str]]]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    """A folder with checkpoints of steps 1 and 2, and what was saved."""
    folder = tmp_path_factory.mktemp("saved")
    training = Alone(folder)
    return folder, [training.saved(), training.saved()]


def _two(folder: Path, saved: Saved) -> list[dict[str, str]]:
    shutil.copytree(saved[0], folder, dirs_exist_ok=True)
    return saved[1]


def _goes_on_from_the_one_before(folder: Path, before: dict[str, str]) -> str:
    """Returns why the newest was passed over."""
    again = Alone(folder)
    assert again.resume() == 1 and again.digests() == before
    assert again.checkpoints.loaded is not None
    ((name, why),) = again.checkpoints.loaded.skipped
    assert name == "step-00000002"
    return why


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda each: each.__name__.strip("_"))
@pytest.mark.parametrize("name", FILES)
def test_is_found(tmp_path: Path, saved: Saved, caplog: pytest.LogCaptureFixture, name: str, damage: Callable[[Path], None]) -> None:
    before, _ = _two(tmp_path, saved)
    damage(tmp_path / "step-00000002" / name)
    why = _goes_on_from_the_one_before(tmp_path, before)
    assert f"step-00000002 is passed over: {why}" in caplog.text
    if name == MANIFEST:
        assert MANIFEST in why and str(tmp_path / "step-00000002") in why
    else:
        assert WHY[damage.__name__].replace(DATA, name) in why


def test_a_bit_of_any_byte(tmp_path: Path, saved: Saved) -> None:
    before, _ = _two(tmp_path, saved)
    chance = random.Random(0)
    for name in FILES:
        path = tmp_path / "step-00000002" / name
        as_written = path.read_bytes()
        for _ in range(6):
            _flipped(path, chance.random())
            _goes_on_from_the_one_before(tmp_path, before)
            path.write_bytes(as_written)
    again = Alone(tmp_path)
    assert again.resume() == 2  # the damage is what kept it


def test_the_same_damage_is_not_seen_by_torch(tmp_path: Path) -> None:
    """Why there are digests: a bit of a weight that torch loads without a word."""
    training = Alone(tmp_path)
    training.saved()
    weight = training.model.get_parameter("1.weight").detach().clone()
    path = tmp_path / "step-00000001" / DATA
    data = path.read_bytes()
    place = data.index(weight.numpy().tobytes()) + 2
    path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
    state = {"model": {"1.weight": weight.clone()}}
    dcp.load(state, checkpoint_id=tmp_path / "step-00000001", no_dist=True)
    assert (state["model"]["1.weight"] != weight).sum() == 1
    with pytest.raises(LoadError, match="has checkpoints, but none that is whole"):
        Alone(tmp_path).resume()


class _Marks:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str, str]]:
        return open, (self._path, "w")


@pytest.mark.parametrize("name", FILES)
def test_nothing_is_unpickled_before_it_is_verified(tmp_path: Path, saved: Saved, name: str) -> None:
    mark = tmp_path / "unpickled"
    before, _ = _two(tmp_path / "runs", saved)
    (tmp_path / "runs" / "step-00000002" / name).write_bytes(pickle.dumps(_Marks(mark)))
    _goes_on_from_the_one_before(tmp_path / "runs", before)
    assert not mark.exists()
    pickle.loads(pickle.dumps(_Marks(mark))).close()
    assert mark.exists()  # it would have shown


def test_a_manifest_that_was_changed_is_not_believed(tmp_path: Path, saved: Saved) -> None:
    """Not even where the change fits: another step, or a file less."""
    before, _ = _two(tmp_path, saved)
    path = tmp_path / "step-00000002" / MANIFEST
    as_written = json.loads(path.read_text(encoding="utf-8"))
    for change in ({"step": 7}, {"ranks": 2}, {"files": {}}, {"parts": []}, {"schema": 2}, {"kind": "export"}, {"sha256": "0" * 64}):
        path.write_text(json.dumps({**as_written, **change}), encoding="utf-8")
        assert MANIFEST in _goes_on_from_the_one_before(tmp_path, before)
    for text in ("", "null", "[]", "{}", '"x"', "1e999", "[" * 100_000, "\xff"):
        path.write_bytes(text.encode("latin-1"))
        assert MANIFEST in _goes_on_from_the_one_before(tmp_path, before)


def test_a_folder_that_was_renamed_is_not_taken_for_another_step(tmp_path: Path, saved: Saved) -> None:
    before, _ = _two(tmp_path, saved)
    (tmp_path / "step-00000002").rename(tmp_path / "step-00000009")
    again = Alone(tmp_path)
    assert again.resume() == 1 and again.digests() == before
    assert again.checkpoints.loaded is not None and "holds step 2: it was renamed" in again.checkpoints.loaded.skipped[0][1]


def test_foreign_files_do_no_harm(tmp_path: Path, saved: Saved) -> None:
    _, newest = _two(tmp_path, saved)
    for path in (tmp_path, tmp_path / "step-00000002"):
        (path / "notes.txt").write_text("mine", encoding="utf-8")
        (path / "__9_0.distcp").write_bytes(b"x")
        (path / "logs").mkdir()
    for name in ("step-2", "step-00000003.tmp", "step-00000003x", "checkpoint-9"):
        (tmp_path / name).mkdir()
    (tmp_path / "step-00000009").write_text("a file", encoding="utf-8")
    (tmp_path / "step-00000008").symlink_to(tmp_path / "step-00000002", target_is_directory=True)
    again = Alone(tmp_path)
    assert again.resume() == 2 and again.digests() == newest
    again.saved()
    assert "step-00000003" in folders(tmp_path) and (tmp_path / "notes.txt").exists() and (tmp_path / "step-2").exists()


def test_a_step_that_is_asked_for_is_not_replaced_by_another(tmp_path: Path, saved: Saved) -> None:
    before, _ = _two(tmp_path, saved)
    _flipped(tmp_path / "step-00000002" / DATA)
    again = Alone(tmp_path)
    with pytest.raises(LoadError, match=r"has no whole checkpoint of step 2; step-00000002: __0_0.distcp has other bytes"):
        again.checkpoints.load(2)
    with pytest.raises(LoadError, match="has no whole checkpoint of step 7"):
        again.checkpoints.load(7)
    assert again.checkpoints.load(1) is not None and again.digests() == before


def test_all_are_damaged(tmp_path: Path, saved: Saved, caplog: pytest.LogCaptureFixture) -> None:
    _two(tmp_path, saved)
    for name in folders(tmp_path):
        _cut(tmp_path / name / DATA)
    with pytest.raises(LoadError, match=r"has checkpoints, but none that is whole.*To begin anew, take them away or name a new folder"):
        Alone(tmp_path).resume()
    assert "step-00000001 is passed over" in caplog.text and "begins anew" not in caplog.text


def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path: Path, saved: Saved) -> None:
    before, _ = _two(tmp_path, saved)
    for name in (DATA, MANIFEST):
        path = tmp_path / "step-00000002" / name
        path.unlink()
        os.mkfifo(path)
        _goes_on_from_the_one_before(tmp_path, before)


def test_a_file_that_cannot_be_read(tmp_path: Path, saved: Saved, monkeypatch: pytest.MonkeyPatch) -> None:
    before, _ = _two(tmp_path, saved)
    plain = LocalPlace.open

    def broken(place: LocalPlace, folder: str, name: str) -> object:
        if folder == "step-00000002" and name == DATA:
            raise OSError(5, "Input/output error")
        return plain(place, folder, name)

    monkeypatch.setattr(LocalPlace, "open", broken)
    assert "__0_0.distcp cannot be read: [Errno 5] Input/output error" in _goes_on_from_the_one_before(tmp_path, before)


@pytest.mark.parametrize("name", [DATA, MANIFEST])
@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), RuntimeError("ClientError: slow down")], ids=["disk", "store"])
def test_what_could_not_be_read_once_is_not_taken_away(
    tmp_path: Path, saved: Saved, monkeypatch: pytest.MonkeyPatch, name: str, error: Exception
) -> None:
    """The error may pass: a load later finds the checkpoint whole."""
    _, newest = _two(tmp_path, saved)
    plain = LocalPlace.open

    def broken(place: LocalPlace, folder: str, file: str) -> object:
        if folder == "step-00000002" and file == name:
            raise error
        return plain(place, folder, file)

    again = Alone(tmp_path, keep=3)
    with monkeypatch.context() as patched:
        patched.setattr(LocalPlace, "open", broken)
        assert again.resume() == 1
        again.saved(3)
    assert folders(tmp_path) == ["step-00000001", "step-00000002", "step-00000004"]
    assert Alone(tmp_path).checkpoints.load(2) is not None
    third = Alone(tmp_path)
    third.checkpoints.load(2)
    assert third.digests() == newest


@pytest.mark.parametrize("name", ["__0_0.distcp", "__1_0.distcp"])
def test_a_lost_shard_of_two(tmp_path: Path, nursery: Nursery, name: str, saved) -> None:
    """Each rank reads a share of the files, and all learn what one of them found."""
    training = nursery.start(tmp_path / "runs", "--steps", 4, "--wrap", "ddp")
    assert training.ended() == [0, 0], training.text()
    digests = {event["step"]: event["digest"] for event in training.events() if "digest" in event}
    (tmp_path / "runs" / "step-00000004" / name).unlink()
    again = nursery.start(tmp_path / "runs", "--steps", 4, "--wrap", "ddp")
    resumed = again.until(lambda event: "resumed" in event)
    assert resumed["resumed"] == 2 and resumed["skipped"] == [["step-00000004", f"{name} is missing"]]
    assert again.ended() == [0, 0]
    assert [event["digest"] for event in again.events() if "digest" in event] == [digests[2], digests[4]]
    assert folders(tmp_path / "runs") == ["step-00000002", "step-00000004.1"]  # the damaged one made room
