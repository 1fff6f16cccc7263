"""Folders that something else wrote: digested where they lie, and made checkpoints by a manifest."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

from fullstep.resume.manifest import MANIFEST, Manifest, StoredFile, digested, flaws_of_files, read_manifest, write_manifest
from fullstep.resume.places import Place


def seal(place: Place, folder: str, manifest: Manifest) -> Manifest:
    """Puts every file of a folder on disk and into a manifest, which is written last.

    Args:
        place: of the folder
        folder: whose files are complete
        manifest: all but the files

    Raises:
        OSError: a file cannot be read, or the manifest not be written
    """
    files = {name: _digested(place, folder, name) for name in place.files(folder) if name != MANIFEST}
    whole = replace(manifest, files=files, written=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
    write_manifest(place, folder, whole)
    return whole


def faults_of(folder: str | Path) -> list[str]:
    """What is wrong with a sealed folder; empty: every file is there, byte for byte as it was sealed.

    Raises:
        LoadError: it was not sealed
    """
    path = Path(folder).absolute()
    place = Place.at(path.parent)
    return [flaw.what for flaw in flaws_of_files(place, path.name, read_manifest(place, path.name))]


def _digested(place: Place, folder: str, name: str) -> StoredFile:
    with place.open(folder, name) as stream:
        file = digested(stream)
        if place.is_local:
            os.fsync(stream.fileno())
    return file
