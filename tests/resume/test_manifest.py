"""The manifest: what is written comes back, and nothing else does."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fullstep.resume import LoadError, Manifest, StoredFile, read_manifest
from fullstep.resume.manifest import MANIFEST, flaws_of_files, write_manifest
from fullstep.resume.places import LocalPlace

PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
NOTES = st.recursive(PLAIN, lambda each: st.lists(each) | st.dictionaries(st.text(), each))
FILES = st.dictionaries(st.text(min_size=1), st.builds(StoredFile, st.integers(0), st.text("0123456789abcdef", min_size=64, max_size=64)))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    step=st.integers(0), ranks=st.integers(1, 4096), parts=st.lists(st.text()), files=FILES, note=st.dictionaries(st.text(), NOTES),
    versions=st.dictionaries(st.text(), st.text()),
)  # fmt: skip
def test_what_is_written_comes_back(tmp_path: Path, **given: object) -> None:
    place = LocalPlace(tmp_path)
    place.claim("one")
    manifest = Manifest(**{**given, "parts": tuple(given["parts"])}, written="2026-01-01T00:00:00Z")  # type: ignore[arg-type, call-overload]
    write_manifest(place, "one", manifest)
    assert read_manifest(place, "one") == read_manifest(str(tmp_path), "one") == manifest
    assert manifest.bytes == sum(file.bytes for file in manifest.files.values())
    assert [path.name for path in (tmp_path / "one").iterdir()] == [MANIFEST]


def _one(tmp_path: Path, files: dict[str, bytes]) -> tuple[LocalPlace, Manifest]:
    place = LocalPlace(tmp_path)
    place.claim("one")
    for name, data in files.items():
        (tmp_path / "one" / name).write_bytes(data)
    stored = {name: StoredFile(len(data), hashlib.sha256(data).hexdigest()) for name, data in files.items()}
    manifest = Manifest(step=1, ranks=1, parts=("model",), files=stored)
    write_manifest(place, "one", manifest)
    return place, manifest


@pytest.mark.parametrize("at", range(0, 400, 17))
def test_no_byte_of_it_can_change(tmp_path: Path, at: int) -> None:
    place, manifest = _one(tmp_path, {"a": b"1"})
    path = tmp_path / "one" / MANIFEST
    data = bytearray(path.read_bytes())
    before = json.loads(data)
    data[at % len(data)] ^= 1
    path.write_bytes(data)
    try:
        changed = json.loads(data)
    except ValueError:
        changed = None
    if changed == before:  # white space
        assert read_manifest(place, "one") == manifest
    else:
        with pytest.raises(LoadError, match=r"fullstep\.json (is damaged|was changed|is of another kind|cannot be read)"):
            read_manifest(place, "one")


def test_files_are_compared_byte_for_byte(tmp_path: Path) -> None:
    files = {"a": b"1" * 1000, "b": b"2" * 10, "c": b"", "d": b"x"}
    place, manifest = _one(tmp_path, files)
    assert flaws_of_files(place, "one", manifest) == []
    (tmp_path / "one" / "a").write_bytes(b"1" * 999 + b"2")
    (tmp_path / "one" / "b").write_bytes(b"2" * 9)
    (tmp_path / "one" / "c").write_bytes(b"3")
    (tmp_path / "one" / "d").unlink()
    (tmp_path / "one" / "e").write_bytes(b"foreign")
    assert [flaw.what for flaw in flaws_of_files(place, "one", manifest)] == [
        "a has other bytes than were written",
        "b has 9 bytes and was written with 10",
        "d is missing",
        "c has 1 bytes and was written with 0",
    ]


def test_readers_share_the_files(tmp_path: Path) -> None:
    place, manifest = _one(tmp_path, {name: name.encode() for name in "abcde"})
    for name in "abcde":
        (tmp_path / "one" / name).unlink()
    found = [flaws_of_files(place, "one", manifest, lambda number, rank=rank: number % 2 == rank) for rank in (0, 1)]
    shares = [[flaw.what for flaw in share] for share in found]
    assert sorted(shares[0] + shares[1]) == [f"{name} is missing" for name in "abcde"] and {len(share) for share in shares} == {2, 3}
