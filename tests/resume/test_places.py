"""Folders of this machine and what fsspec reaches behave alike, as far as both can."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fullstep.resume.places import LocalPlace, Place, RemotePlace


@pytest.fixture(params=["folder", "file://", "memory://"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Empty, and not there yet."""
    fsspec = None if request.param == "folder" else pytest.importorskip("fsspec")  # it comes with torch
    if request.param == "memory://":
        yield Place.at("memory://places/a/b")
        assert fsspec is not None
        if fsspec.filesystem("memory").exists("/places"):
            fsspec.filesystem("memory").rm("/places", recursive=True)
    else:
        yield Place.at(f"{'file://' if request.param == 'file://' else ''}{tmp_path}/a/b")


def test_which_kind() -> None:
    assert isinstance(Place.at("runs"), LocalPlace) and isinstance(Place.at(Path("runs")), LocalPlace)
    pytest.importorskip("fsspec")
    assert isinstance(Place.at("memory://runs"), RemotePlace)
    assert Place.at("runs").is_local and not Place.at("memory://runs").is_local
    assert Place.at("memory://runs/").path("one") == "memory://runs/one"


def test_a_folder_is_claimed_once(place: Place) -> None:
    assert place.names() == []
    assert place.claim("one") and not place.claim("one") and place.claim("two")
    assert sorted(place.names()) == ["one", "two"]
    assert place.files("one") == []


def test_a_store_that_has_no_empty_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    """As object stores have none: a folder is there when a file of it is."""
    files = pytest.importorskip("fsspec").filesystem("memory")
    place = Place.at("memory://stored")
    monkeypatch.setattr(files, "makedirs", lambda *_, **__: None)
    monkeypatch.setattr(files, "exists", lambda path: bool(files.find(path)))
    assert place.claim("one") and not place.claim("one")
    assert place.names() == ["one"] and place.files("one") == []
    place.remove("one", "manifest")
    assert place.names() == []


def test_files(place: Place, tmp_path: Path) -> None:
    place.claim("one")
    assert not place.has("one", "a")
    with pytest.raises(FileNotFoundError):
        place.read("one", "a")
    place.write_whole("one", "a", b"first")
    place.write_whole("one", "a", b"second")
    (tmp_path / "other").write_bytes(b"copied")
    place.put("one", "deep/b", tmp_path / "other")
    assert place.has("one", "a") and place.read("one", "a") == b"second" and place.read("one", "deep/b") == b"copied"
    assert place.files("one") == ["a", "deep/b"]


def test_a_folder_goes_whatever_is_in_it(place: Place) -> None:
    place.claim("one")
    place.claim("two")
    place.write_whole("one", "manifest", b"1")
    place.write_whole("one", "data", b"1")
    for _ in range(2):  # what is gone is gone
        place.remove("one", "manifest")
        assert place.names() == ["two"]
    place.remove("two", "manifest")  # which it never had
    assert place.names() == []


def test_that_one_file_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is killed in between leaves what does not count."""
    place = LocalPlace(tmp_path)
    place.claim("one")
    place.write_whole("one", "manifest", b"1")
    place.write_whole("one", "data", b"1")
    monkeypatch.setattr("shutil.rmtree", lambda *_, **__: None)
    place.remove("one", "manifest")
    assert place.files("one") == ["data"]


def test_what_is_written_whole_is_on_disk_before_its_name_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bytes, and the names of the files before it; then its own name. Else a loss of power could leave it alone."""
    place = LocalPlace(tmp_path)
    place.claim("one")
    done: list[str] = []
    plain_sync, plain_replace = os.fsync, Path.replace

    def sync(handle: int) -> None:
        done.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "bytes")
        plain_sync(handle)

    def replace(path: Path, target: Path) -> Path:
        done.append("name")
        return plain_replace(path, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(Path, "replace", replace)
    place.write_whole("one", "manifest", b"1")
    assert done == ["bytes", "folder", "name", "folder"]


def _failing_for(kind: Callable[[int], bool], number: int) -> Callable[[int], None]:
    def sync(handle: int) -> None:
        if kind(os.fstat(handle).st_mode):
            raise OSError(number, os.strerror(number))

    return sync


def test_a_name_that_does_not_come_to_disk_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = LocalPlace(tmp_path)
    place.claim("one")
    calls: list[int] = []

    def second_fails(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            calls.append(handle)
            if len(calls) == 2:
                raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", second_fails)
    with pytest.raises(OSError, match="Input/output error"):
        place.write_whole("one", "manifest", b"1")
    assert not place.has("one", "manifest")


def test_a_file_system_that_syncs_no_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = LocalPlace(tmp_path)
    place.claim("one")
    monkeypatch.setattr(os, "fsync", _failing_for(stat.S_ISDIR, errno.EINVAL))
    place.write_whole("one", "manifest", b"1")
    assert place.read("one", "manifest") == b"1"


def test_what_cannot_be_written_whole_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = LocalPlace(tmp_path)
    place.claim("one")
    place.write_whole("one", "manifest", b"before")
    monkeypatch.setattr(os, "fsync", _failing_for(stat.S_ISREG, errno.ENOSPC))
    with pytest.raises(OSError, match="No space left"):
        place.write_whole("one", "manifest", b"after")
    assert place.read("one", "manifest") == b"before"


def test_handles_are_given_back(tmp_path: Path) -> None:
    place = LocalPlace(tmp_path)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names alone
    for number in range(20):
        place.claim(f"{number}")
        place.write_whole(f"{number}", "a", b"1")
        place.read(f"{number}", "a")
        place.remove(f"{number}", "a")
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_a_folder_that_was_moved_and_linked_counts_and_what_the_link_names_is_never_taken_away(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere" / "step-00000001"
    elsewhere.mkdir(parents=True)
    (elsewhere / "fullstep.json").write_text("{}")
    place = LocalPlace(tmp_path / "runs")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "step-00000001").symlink_to(elsewhere)
    assert place.names() == ["step-00000001"]
    place.remove("step-00000001", "fullstep.json")
    assert place.names() == [] and (elsewhere / "fullstep.json").exists()
