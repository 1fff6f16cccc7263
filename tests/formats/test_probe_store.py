"""A folder of records: a file each, none is overwritten, and a bad one does not hide the others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from probes_by_hand import probe_by_hand

from fullstep.errors import InputError
from fullstep.formats.probe_record import Stored, places, read_all, read_any, record_text, save


def test_a_name_of_time_model_and_digest(tmp_path: Path) -> None:
    name = save(probe_by_hand(), str(tmp_path / "new" / "evidence"))
    assert name.startswith("20260131-123045-llama-3.1-8b-") and name.endswith(".json")
    assert (tmp_path / "new" / "evidence" / name).read_text() == record_text(probe_by_hand())
    assert [path.name for path in (tmp_path / "new" / "evidence").iterdir()] == [name]


def test_a_model_whose_name_is_a_path_stays_in_the_folder(tmp_path: Path) -> None:
    name = save(probe_by_hand(model="../../..\x00/etc/\u202eabc"), str(tmp_path))
    assert (tmp_path / name).is_file() and "/" not in name and name.isascii()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    first = save(probe_by_hand(), str(tmp_path))
    assert save(probe_by_hand(), str(tmp_path)) == first
    (tmp_path / first).write_text("somebody's notes")
    second = save(probe_by_hand(), str(tmp_path))
    assert second == first.replace(".json", "-2.json")
    assert (tmp_path / first).read_text() == "somebody's notes"


def test_nothing_is_overwritten_where_there_are_no_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_link(*_: object) -> None:
        raise PermissionError(1, "no links here")

    monkeypatch.setattr(places.os, "link", no_link)
    test_nothing_is_overwritten(tmp_path)


def test_a_bad_file_does_not_hide_the_others(tmp_path: Path) -> None:
    good = save(probe_by_hand(), str(tmp_path))
    (tmp_path / "bad.json").write_bytes(b"\x80\x04")
    (tmp_path / "notes.txt").write_text("not looked at")
    os.mkfifo(tmp_path / "pipe.json")
    found = {stored.name: stored for stored in read_all(str(tmp_path))}
    assert set(found) == {good, "bad.json", "pipe.json"}
    assert found[good].probe == probe_by_hand() and not found[good].faults
    assert found["bad.json"].probe is None and "not UTF-8" in found["bad.json"].faults[0].found
    assert "pipe" in found["pipe.json"].faults[0].found


def test_a_single_file(tmp_path: Path) -> None:
    name = save(probe_by_hand(), str(tmp_path))
    assert read_any(str(tmp_path / name)) == Stored(name, probe_by_hand())
    assert [stored.name for stored in read_all(str(tmp_path / name))] == [name]
    save(probe_by_hand(seed=1), str(tmp_path))
    with pytest.raises(InputError, match="a folder with 2 records"):
        read_any(str(tmp_path))


@pytest.mark.parametrize("where", ["", "nowhere/at/all", "a\0b", "nothing://known"])
def test_a_place_that_is_none(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError):
        read_all(where)


def test_by_url() -> None:
    pytest.importorskip("fsspec")
    where = "memory://fullstep-evidence/a"
    name = save(probe_by_hand(), where)
    assert save(probe_by_hand(), where) == name
    other = save(probe_by_hand(seed=1), where)
    assert {stored.name: stored.probe for stored in read_all(where)} == {name: probe_by_hand(), other: probe_by_hand(seed=1)}
    assert read_any(f"{where}/{name}") == Stored(name, probe_by_hand())
    with pytest.raises(InputError, match="no such file"):
        read_all("memory://fullstep-evidence/elsewhere")


def test_without_fsspec_a_url_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys  # noqa: PLC0415

    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(InputError, match="pip install fsspec"):
        read_all("s3://bucket/evidence")


def test_what_could_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"could not be read again: the record: ranks: a rank twice on the same device, or one beyond"):
        save(probe_by_hand(world_size=1), str(tmp_path))
    assert list(tmp_path.iterdir()) == []
