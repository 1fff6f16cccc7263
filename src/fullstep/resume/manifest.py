"""The manifest: the one file that makes a folder a checkpoint. Written last, it lists every other file with size and digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import IO, Any, NamedTuple

from fullstep.resume.errors import IncompleteError, LoadError, UnreadableError
from fullstep.resume.places import Place

MANIFEST = "fullstep.json"
_KIND = "fullstep checkpoint"
_SCHEMA = 1
_READ_BYTES = 1 << 23
_READERS = 2
"""files of one rank that are read at once"""


class StoredFile(NamedTuple):
    """A file as it was written."""

    bytes: int
    sha256: str


class Flaw(NamedTuple):
    """What is wrong with a file."""

    what: str
    lasts: bool = True
    """False: it could not be read, which may pass"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a checkpoint holds."""

    step: int
    ranks: int
    """that saved it"""
    parts: tuple[str, ...]
    """model, optimizer, scheduler, rng, loader and the names of what else was given"""
    starts: int = 1
    """so many times training had begun or gone back to a checkpoint in this place, before it saved this one"""
    files: Mapping[str, StoredFile]
    frozen: tuple[str, ...] = ()
    """fingerprint of the parameters that do not train and are not in it; several: of each rank's"""
    written: str = ""
    """time, UTC"""
    versions: Mapping[str, str] = field(default_factory=dict)
    """of torch and fullstep"""
    note: Mapping[str, Any] = field(default_factory=dict)
    """whatever the user wants to find again"""

    @property
    def bytes(self) -> int:
        """Of all files but the manifest."""
        return sum(file.bytes for file in self.files.values())


def write_manifest(place: Place, folder: str, manifest: Manifest) -> None:
    """Makes the folder a checkpoint: from here on it counts.

    Raises:
        OSError: it cannot be written
    """
    body = {
        "kind": _KIND,
        "schema": _SCHEMA,
        "step": manifest.step,
        "starts": manifest.starts,
        "ranks": manifest.ranks,
        "parts": list(manifest.parts),
        "frozen": list(manifest.frozen),
        "written": manifest.written,
        "versions": dict(manifest.versions),
        "note": dict(manifest.note),
        "files": {name: file._asdict() for name, file in sorted(manifest.files.items())},
    }
    place.write_whole(folder, MANIFEST, json.dumps({**body, "sha256": _digest(body)}, indent=1).encode())


def read_manifest(place: Place | str, folder: str) -> Manifest:
    """The manifest of a folder; nothing else in the folder is looked at.

    Raises:
        IncompleteError: there is none
        UnreadableError: it cannot be read
        LoadError: it is damaged
    """
    place = Place.at(place) if isinstance(place, str) else place
    try:
        text = place.read(folder, MANIFEST)
    except FileNotFoundError:
        raise IncompleteError(f"{place.show(folder)} has no {MANIFEST}: it was not completed, or something else wrote it") from None
    except Exception as error:  # libraries behind fsspec have errors of their own
        raise UnreadableError(f"{place.show(folder)}/{MANIFEST} cannot be read: {error}") from None
    try:
        body = json.loads(text)
        stated = body.pop("sha256")
        if body["kind"] != _KIND or body["schema"] != _SCHEMA:
            raise LoadError(f"{place.show(folder)}/{MANIFEST} is of another kind or a newer version")
        if stated != _digest(body):
            raise LoadError(f"{place.show(folder)}/{MANIFEST} was changed after it was written")
        return Manifest(
            step=body["step"], starts=body["starts"], ranks=body["ranks"],
            parts=tuple(body["parts"]), frozen=tuple(body["frozen"]), written=body["written"], versions=body["versions"],
            note=body["note"], files={name: StoredFile(**file) for name, file in body["files"].items()},
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise LoadError(f"{place.show(folder)}/{MANIFEST} is damaged") from None


def flaws_of_files(place: Place, folder: str, manifest: Manifest, mine: Callable[[int], bool] = lambda _: True) -> list[Flaw]:
    """What is wrong with the files; empty: each is byte for byte as it was written.

    Args:
        place: of the folder
        folder: the checkpoint
        manifest: its own
        mine: which files, by number, this process looks at; the ranks divide them among themselves, largest first
    """
    by_size = sorted(manifest.files.items(), key=lambda item: (-item[1].bytes, item[0]))
    chosen = [item for number, item in enumerate(by_size) if mine(number)]
    with ThreadPoolExecutor(_READERS) as pool:
        return [flaw for flaw in pool.map(lambda item: _flaw_of(place, folder, *item), chosen) if flaw is not None]


def _flaw_of(place: Place, folder: str, name: str, file: StoredFile) -> Flaw | None:
    try:
        with place.open(folder, name) as stream:
            found = digested(stream)
    except FileNotFoundError:
        return Flaw(f"{name} is missing")
    except Exception as error:
        return Flaw(f"{name} cannot be read: {error}", lasts=False)
    if found.bytes != file.bytes:
        return Flaw(f"{name} has {found.bytes:,} bytes and was written with {file.bytes:,}")
    return None if found.sha256 == file.sha256 else Flaw(f"{name} has other bytes than were written")


def digested(stream: IO[bytes]) -> StoredFile:
    """Size and digest of what is left of a stream: one thread reads while the other digests.

    >>> import io
    >>> digested(io.BytesIO(b"abc"))[0], digested(io.BytesIO(b"abc"))[1][:8]
    (3, 'ba7816bf')
    """
    digest, size = hashlib.sha256(), 0
    rooms = (bytearray(_READ_BYTES), bytearray(_READ_BYTES))
    with ThreadPoolExecutor(1) as reader:
        reading, turn = reader.submit(stream.readinto, rooms[0]), 0  # type: ignore[attr-defined]
        while count := reading.result():
            filled, turn = memoryview(rooms[turn])[:count], 1 - turn
            reading = reader.submit(stream.readinto, rooms[turn])  # type: ignore[attr-defined]
            digest.update(filled)
            size += count
    return StoredFile(size, digest.hexdigest())


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
