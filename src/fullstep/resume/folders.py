"""Which folders of a place are checkpoints, which of them is the newest whole one, and which may go."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple

from fullstep.resume.errors import LoadError, SaveError, UnreadableError
from fullstep.resume.manifest import MANIFEST, Manifest, read_manifest
from fullstep.resume.places import CLAIM, Place

_NAME = re.compile(r"step-(\d{8,})(?:\.(\d+))?")
_MOST_TRIES = 100
"""others may make folders at the same time"""


class Found(NamedTuple):
    """A folder that a save has begun."""

    folder: str
    step: int
    attempt: int
    """saves of the same step are numbered; the last one counts"""
    manifest: Manifest | None
    """None: it was not completed, or is damaged or cannot be read"""
    why: LoadError | None = None
    """there is no manifest"""

    @property
    def age(self) -> tuple[int, int, int]:
        """What is later is greater: a training that went back to an earlier step is later than what it had saved beyond that."""
        return (self.manifest.starts if self.manifest is not None else 0, self.step, self.attempt)


def folder_name(step: int, attempt: int = 0) -> str:
    """Of a checkpoint.

    >>> folder_name(500), folder_name(500, 2)
    ('step-00000500', 'step-00000500.2')
    """
    return f"step-{step:08d}" + (f".{attempt}" if attempt else "")


def claim_folder(place: Place, step: int) -> str:
    """A new folder for a checkpoint: one that is there is never written into, whoever left it. Its number is above all of that step.

    Raises:
        SaveError: none can be made
    """
    try:
        there = [int(match[2] or 0) for name in place.names() if (match := _NAME.fullmatch(name)) and int(match[1]) == step]
        first = max(there, default=-1) + 1
        for attempt in range(first, first + _MOST_TRIES):
            if place.claim(name := folder_name(step, attempt), marked=True):
                return name
    except OSError as error:
        raise SaveError(f"{place.show(folder_name(step))} cannot be made: {error.strerror or error}", "Training was not touched.") from None
    raise SaveError(f"{place.show(name)} is there, and the {_MOST_TRIES} before it", "Use a new folder for a new training.")


def checkpoints_in(place: Place | str | Path) -> list[Found]:
    """All folders that saves have begun, the newest first. Files are not read but for manifests.

    Raises:
        LoadError: the place cannot be looked into
    """
    place = Place.at(place) if isinstance(place, (str, Path)) else place
    try:
        names = place.names()
    except OSError as error:
        raise LoadError(f"{place.root} cannot be looked into: {error.strerror or error}") from None
    matches = [(name, match) for name in names if (match := _NAME.fullmatch(name))]
    found = [_found(place, name, int(match[1]), int(match[2] or 0)) for name, match in matches]
    last = starts_in(found)
    return sorted(found, key=lambda each: each.age if each.manifest is not None else (last, each.step, each.attempt), reverse=True)


def starts_in(found: Iterable[Found]) -> int:
    """How often training has begun or gone back there; 0: nothing whole is there."""
    return max((each.manifest.starts for each in found if each.manifest is not None), default=0)


def _found(place: Place, name: str, step: int, attempt: int) -> Found:
    try:
        manifest = read_manifest(place, name)
    except LoadError as error:
        return Found(name, step, attempt, None, error)
    if manifest.step != step:
        return Found(name, step, attempt, None, LoadError(f"{place.show(name)} holds step {manifest.step}: it was renamed"))
    return Found(name, step, attempt, manifest)


def _may_go(place: Place, found: Found) -> bool:
    """A save has begun it, or was killed between making it and marking it; and it is known not to be whole."""
    if isinstance(found.why, UnreadableError):
        return False
    return found.manifest is not None or place.has(found.folder, CLAIM) or place.is_empty(found.folder)


def make_room(place: Place, keep: int, new: str, damaged: Collection[str] = ()) -> list[str]:
    """Takes away what the new checkpoint makes superfluous, once it is complete.

    Checkpoints beyond the newest ``keep``, and folders of earlier steps whose save never ended, or that are damaged. What is later than the
    new one stays: it is of another run. So does what something else wrote, and what could not be read: that may pass.

    Args:
        place: of the checkpoints
        keep: so many whole ones stay, the new one among them
        new: folder of the checkpoint that was just completed
        damaged: folders that do not count, although they have a manifest

    Returns:
        the folders that are gone; none where ``new`` is not complete
    """
    found = checkpoints_in(place)
    this = next((each for each in found if each.folder == new), None)
    if this is None or this.manifest is None:
        return []
    earlier = (this.step, this.attempt)
    older = [each for each in found if (each.age < this.age if each.manifest is not None else (each.step, each.attempt) < earlier)]
    whole = [each for each in older if each.manifest is not None and each.folder not in damaged]
    gone = [*whole[keep - 1 :], *(each for each in older if each not in whole and _may_go(place, each))]
    for each in gone:
        place.remove(each.folder, MANIFEST)
    return [each.folder for each in gone]
