"""Folders of experiments: taken away by their own, or by the next one where a kill left nobody to do it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fullstep.lab.room import room_of

_HOLDS = "import sys, time\nfrom fullstep.lab.room import room_of\nwith room_of('test') as room: print(room, flush=True); time.sleep(600)"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def _names(place: Path) -> set[str]:
    return {path.name for path in place.iterdir()}


def _make_old(folder: Path) -> None:
    then = time.time() - 3600
    os.utime(folder / ".here", (then, then))


def test_it_is_taken_away(place: Path) -> None:
    with room_of("test") as room:
        assert Path(room).parent == place and Path(room).name.startswith("fullstep-test-")
    assert _names(place) == set()


def test_one_that_a_kill_left_goes_with_the_next(place: Path) -> None:
    """One whose experiment goes on stays, however old it is; so does what is no experiment's."""
    (place / "fullstep-test-of-mine").mkdir()
    (place / "fullstep-test-link").symlink_to(place / "fullstep-test-of-mine")
    with subprocess.Popen([sys.executable, "-c", _HOLDS], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        left = Path(process.stdout.readline().strip())
        _make_old(left)
        with room_of("test"):
            assert left.is_dir()
        process.send_signal(signal.SIGKILL)
        process.wait()
    with room_of("other"):
        assert left.is_dir()
    with room_of("test"):
        assert not left.exists()
    assert _names(place) == {"fullstep-test-of-mine", "fullstep-test-link"}


def test_a_young_one_stays(place: Path) -> None:
    """It may be about to be locked."""
    young = place / "fullstep-test-young"
    young.mkdir()
    (young / ".here").touch()
    with room_of("test"):
        assert young.is_dir()
