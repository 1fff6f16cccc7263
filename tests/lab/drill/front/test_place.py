"""The drill takes away what it made, and nothing else."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from fullstep.errors import InputError
from fullstep.lab.drill.front.place import DrillFolder, require_place


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
    with pytest.raises(InputError, match="nothing can be made there: a file is in the way"), DrillFolder(inside, keep=False):
        pass


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_folder_without_permission_is_the_users_fault(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(InputError, match="Permission denied"), DrillFolder(str(tmp_path), keep=False):
        pass


def test_parents_stay_where_something_else_has_come_into_them(tmp_path: Path) -> None:
    with DrillFolder(str(tmp_path / "new" / "deeper"), keep=False):
        (tmp_path / "new" / "mine").touch()
    assert [path.name for path in tmp_path.rglob("*")] == ["new", "mine"]


@pytest.mark.parametrize(
    ("to", "why"),
    [
        ("nosuchkind://bucket/a", "fsspec does not know nosuchkind://"),
        ("memory://runs", "files of memory:// live inside of one process"),
        ("github://somebody:something@/runs", "github:// cannot be written"),
        ("tar://runs", "tar:// cannot be written"),
        ("://x", "a URL without its kind"),
        ("simplecache::memory://runs", "a URL of several kinds"),
    ],
)
def test_a_url_that_several_processes_cannot_write_is_refused(to: str, why: str) -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(InputError, match=re.escape(why)) as error:
        require_place(to)
    fault = error.value.faults[0]
    assert fault.where == "--to" and to in fault.found
    assert "s3://bucket/runs" in fault.allowed and "--to /mnt/runs" in fault.remedy


def test_a_url_whose_library_is_missing_is_refused_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec = pytest.importorskip("fsspec")

    def missing(_: str) -> None:
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fsspec, "get_filesystem_class", missing)
    with pytest.raises(InputError, match="its library is not installed: Install s3fs"):
        require_place("s3://bucket/runs")


@pytest.mark.parametrize("kind", ["file", "ftp", "hf", "webhdfs"])
def test_what_can_be_written_is_taken(kind: str) -> None:
    """As far as fsspec's own classes say, without asking anybody."""
    fsspec = pytest.importorskip("fsspec")
    try:
        fsspec.get_filesystem_class(kind)
    except ImportError:
        pytest.skip("its library is not there")
    require_place(f"{kind}://host/runs")
    require_place("/mnt/runs")


def test_a_url_is_a_place_as_well_and_one_that_says_no_is_the_users_fault(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    with DrillFolder(f"file://{tmp_path}", keep=False) as folder:
        assert folder.path.startswith(f"file://{tmp_path}/fullstep-drill-")
        assert len(list(tmp_path.iterdir())) == 1
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputError, match="nothing can be made there"), DrillFolder("tar://runs", keep=False):
        pass
