"""The snapshot takes its place when the trace is done, and only then."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fullstep.errors import InputError, LabError
from fullstep.ledger import Trace

Traced = Callable[..., Trace]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "snapshots"
    folder.mkdir()
    return folder


def test_it_is_written_beside_and_moved(traced: Traced, folder: Path) -> None:
    target = folder / "step.pickle"
    target.write_text("an older one")
    traced(snapshot=target)
    assert target.read_text() == "a snapshot"
    assert list(folder.iterdir()) == [target]


def test_a_link_stays_a_link(traced: Traced, folder: Path) -> None:
    (folder / "link").symlink_to(folder / "step.pickle")
    traced(snapshot=folder / "link")
    assert (folder / "link").is_symlink()
    assert (folder / "step.pickle").read_text() == "a snapshot"


def test_the_path_may_be_relative(traced: Traced, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    traced(snapshot=Path("step.pickle"))
    assert (folder / "step.pickle").read_text() == "a snapshot"


@pytest.mark.parametrize("behaviour", ["killed", "no snapshot", "crash"])
def test_an_older_one_stays_when_the_trace_fails(behaviour: str, traced: Traced, folder: Path) -> None:
    target = folder / "step.pickle"
    target.write_text("an older one")
    with pytest.raises(LabError):
        traced(behaviour, snapshot=target)
    assert target.read_text() == "an older one"
    assert list(folder.iterdir()) == [target]


def test_a_device_is_written_directly(traced: Traced) -> None:
    traced(snapshot=Path(os.devnull))
    assert not Path(os.devnull).is_file()


@pytest.mark.parametrize("name", ["missing/step.pickle", "file/step.pickle", "."])
def test_where_nothing_can_be_written(name: str, traced: Traced, folder: Path) -> None:
    (folder / "file").write_text("")
    with pytest.raises(InputError, match=r"^--snapshot: .* cannot be written"):
        traced(snapshot=folder / name)
    assert [path.name for path in folder.iterdir()] == ["file"]
