"""Records in a folder: one file each, never overwritten; one that cannot be read does not hide the others."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from fullstep.errors import Fault, InputError
from fullstep.formats.probe_record.places import Folder, folder_at
from fullstep.formats.probe_record.reading import record_from_bytes
from fullstep.formats.probe_record.writing import LARGEST_BYTES, record_text, table_text
from fullstep.ledger.link import MeasuredLink
from fullstep.ledger.probe import Probe

MOST_FILES = 10_000
"""that are read of one folder"""
_TRIES = 1000
_REPORT = "Please report this with the command."


class Stored(NamedTuple):
    """A file of a folder with records."""

    name: str
    """the file's"""
    probe: Probe | None
    """None: it is of links, or could not be read"""
    faults: tuple[Fault, ...] = ()
    """why not"""
    link: MeasuredLink | None = None
    """None: it is of a probe, or could not be read"""

    @property
    def is_sound(self) -> bool:
        """It could be read."""
        return not self.faults


def save(probe: Probe, where: str) -> str:
    """Writes the record of a probe and returns the name of its file; the name of the one that is there where it was saved before.

    Args:
        probe: to be kept
        where: a folder, or a URL that fsspec reaches; a folder is made where it is not there

    Raises:
        InputError: it cannot be written there, is too large, or holds what the reader would refuse
    """
    data = record_text(probe).encode("ascii")
    _require_readable(data, where)
    return _kept(where, _stem(probe.made, probe.model.rpartition("/")[2], json.loads(data)["sha256"]), data)


def save_link(record: Mapping[str, Any], where: str) -> str:
    """The same of a sealed record of links (see :func:`sealed`).

    Args:
        record: to be kept
        where: a folder, or a URL that fsspec reaches; a folder is made where it is not there

    Raises:
        InputError: it cannot be written there, or holds what the reader would refuse
    """
    data = table_text(record).encode("ascii")
    _require_readable(data, where)
    environment = record["environment"]
    return _kept(where, _stem(record["made"], f"link-{environment['ranks']}x-{environment['device']}", record["sha256"]), data)


def _kept(where: str, stem: str, data: bytes) -> str:
    folder = folder_at(where)
    for count in range(1, _TRIES):
        name = f"{stem}.json" if count == 1 else f"{stem}-{count}.json"
        if folder.write_new(name, data) or _is_same(folder, name, data):
            return name
    raise InputError(Fault(where, f"{_TRIES} files of the name {stem}", "room for one more"))


def read_all(where: str) -> tuple[Stored, ...]:
    """Every record of a folder, or the single one of a file, by name; also what could not be read, and why.

    Args:
        where: a folder or file, or a URL that fsspec reaches

    Raises:
        InputError: nothing of that name is there, it cannot be looked into, or it holds too many files
    """
    folder = folder_at(where)
    names = folder.names()
    if len(names) > MOST_FILES:
        raise InputError(Fault(where, f"{len(names):,} files", f"at most {MOST_FILES:,}", "Sort them into several folders."))
    return tuple(_stored(folder, name) for name in names)


def read_any(where: str) -> Stored:
    """The record of a file, be it of a probe or of links.

    Raises:
        InputError: it is not there, or no record; or this is a folder that does not hold exactly one
    """
    name, raw = _single(where)
    found = record_from_bytes(raw, name)
    return Stored(name, found) if isinstance(found, Probe) else Stored(name, None, (), found)


def _single(where: str) -> tuple[str, bytes]:
    """Name and bytes of the one file that is there."""
    folder = folder_at(where)
    names = folder.names()
    if len(names) != 1:
        remedy = f"For example {where.rstrip('/')}/{names[0]}." if names else ""
        raise InputError(Fault(where, f"a folder with {len(names)} records", "a single record", remedy))
    return names[0], folder.read(names[0], LARGEST_BYTES + 1)


def _stored(folder: Folder, name: str) -> Stored:
    try:
        found = record_from_bytes(folder.read(name, LARGEST_BYTES + 1), name)
        return Stored(name, found) if isinstance(found, Probe) else Stored(name, None, (), found)
    except InputError as error:
        return Stored(name, None, error.faults)


def _require_readable(data: bytes, where: str) -> None:
    """What is written has to be read again."""
    try:
        record_from_bytes(data, "the record")
    except InputError as error:
        raise InputError(Fault(where, f"not written, since it could not be read again: {error}", "a sound record", _REPORT)) from None


def _is_same(folder: Folder, name: str, data: bytes) -> bool:
    try:
        return folder.read(name, len(data) + 1) == data
    except InputError:  # a folder or pipe bears that name
        return False


def _stem(made: str, what: str, digest: str) -> str:
    """Time, what was measured and the digest's first digits: names sort by time."""
    time = re.sub(r"\D", "", made)[:14]
    words = re.sub(r"[^a-z0-9.]+", "-", what.lower()).strip("-.")[:40] or "model"
    return f"{time[:8]}-{time[8:]}-{words}-{digest[:8]}"
