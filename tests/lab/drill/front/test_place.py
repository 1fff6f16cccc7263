"""The drill takes away what it made, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fullstep.errors import InputError
from fullstep.lab.drill.front.place import DrillFolder


def test_only_what_was_made_is_gone(tmp_path: Path) -> None:
    """Foreign files stay; a folder that was there stays, one that was not goes."""
    (tmp_path / "mine").write_text("stays")
    with DrillFolder(str(tmp_path), keep=False) as there, DrillFolder(str(tmp_path / "new" / "deeper"), keep=False) as new:
        for folder in (there, new):
            Path(folder.path, "step-1").mkdir()
            Path(folder.path, "step-1", "file").write_text("x")
    assert [path.name for path in tmp_path.rglob("*")] == ["mine"]


def test_files_are_kept_on_demand_and_also_after_an_error_only_then(tmp_path: Path) -> None:
    for keep in (True, False):
        with pytest.raises(RuntimeError), DrillFolder(str(tmp_path), keep=keep) as folder:
            raise RuntimeError
        assert Path(folder.path).exists() is keep


def test_a_file_in_the_way_is_the_users_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    inside = str(tmp_path / "file")
    with pytest.raises(InputError, match="nothing can be made there: Not a directory"), DrillFolder(inside, keep=False):
        pass


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_folder_without_permission_is_the_users_fault(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(InputError, match="Permission denied"), DrillFolder(str(tmp_path), keep=False):
        pass


def test_a_url_without_its_library_is_the_users_fault() -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(InputError, match="--to"), DrillFolder("nosuchkind://bucket/a", keep=False):
        pass
