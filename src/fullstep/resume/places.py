"""Where checkpoints lie: a folder of this machine, or whatever fsspec reaches by a URL."""

from __future__ import annotations

import errno
import logging
import os
import posixpath
import shutil
from abc import ABC, abstractmethod
from pathlib import Path
from typing import IO, Any

_LOG = logging.getLogger("fullstep.resume")
CLAIM = ".claimed"
"""an empty file in a folder that a save has begun: whoever takes folders away takes none that another program made"""
_NO_SYNC_OF_FOLDERS = (errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.ENOSYS)


class Place(ABC):
    """The folder that holds all checkpoints of one training. Files in a checkpoint have slashes in their names where they lie deeper."""

    root: str

    @staticmethod
    def at(root: str | Path) -> Place:
        """The place that a path or URL names.

        >>> type(Place.at("runs/a")).__name__, Place.at("runs/a").root == os.path.abspath("runs/a")
        ('LocalPlace', True)
        """
        return RemotePlace(root) if isinstance(root, str) and "://" in root else LocalPlace(root)

    def path(self, folder: str) -> str:
        """Of a checkpoint."""
        return posixpath.join(self.root, folder)

    def show(self, folder: str) -> str:
        """For messages."""
        return self.path(folder)

    @abstractmethod
    def names(self) -> list[str]:
        """Of the folders in it; empty where it is not there yet.

        Raises:
            OSError: it cannot be looked into
        """

    @abstractmethod
    def claim(self, folder: str, marked: bool = False) -> bool:
        """Makes a new folder; False: it is there.

        Args:
            folder: its name
            marked: with the empty file CLAIM in it

        Raises:
            OSError: it cannot be made
        """

    @abstractmethod
    def has(self, folder: str, name: str) -> bool:
        """Whether a file is there."""

    @abstractmethod
    def files(self, folder: str) -> list[str]:
        """Of a checkpoint, by name, those in folders below it among them; not CLAIM."""

    @abstractmethod
    def is_empty(self, folder: str) -> bool:
        """Whether nothing at all is in it."""

    @abstractmethod
    def put(self, folder: str, name: str, file: Path) -> None:
        """Copies a file of this machine into a checkpoint."""

    @abstractmethod
    def open(self, folder: str, name: str) -> IO[bytes]:
        """To read."""

    @abstractmethod
    def write_whole(self, folder: str, name: str, data: bytes) -> None:
        """A small file that is there whole or not at all, and stays there."""

    @abstractmethod
    def remove(self, folder: str, first: str) -> None:
        """Takes a folder away, the file ``first`` before all others. What is gone already is fine, and so is what else stays.

        Raises:
            OSError: that file stays
        """

    @property
    @abstractmethod
    def is_local(self) -> bool:
        """Whether it is a file system of this machine, mounted ones among them."""

    def read(self, folder: str, name: str) -> bytes:
        """A small file."""
        with self.open(folder, name) as stream:
            return stream.read()


class LocalPlace(Place):
    """A file system of this machine."""

    is_local = True

    def __init__(self, root: str | Path) -> None:
        self.root = str(Path(root).absolute())
        self._seen = False

    def names(self) -> list[str]:
        try:
            return [entry.name for entry in os.scandir(self.root) if entry.is_dir()]
        except FileNotFoundError:
            return []

    def claim(self, folder: str, marked: bool = False) -> bool:
        self._make_root()
        try:
            Path(self.path(folder)).mkdir()
        except FileExistsError:
            return False
        if marked:
            Path(self.path(folder), CLAIM).touch()
        _keep_names(self.root)
        return True

    def _make_root(self) -> None:
        if self._seen and not Path(self.root).is_dir():
            _LOG.warning("%s has vanished, and with it what was in it. It is made anew: is its disk still there?", self.root)
        Path(self.root).mkdir(parents=True, exist_ok=True)
        self._seen = True

    def has(self, folder: str, name: str) -> bool:
        return Path(self.path(folder), name).exists()

    def files(self, folder: str) -> list[str]:
        root = Path(self.path(folder))
        return sorted(each.relative_to(root).as_posix() for each in root.rglob("*") if each.is_file() and each != root / CLAIM)

    def is_empty(self, folder: str) -> bool:
        return not list(Path(self.path(folder)).iterdir())

    def put(self, folder: str, name: str, file: Path) -> None:
        target = Path(self.path(folder), name)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)

    def open(self, folder: str, name: str) -> IO[bytes]:
        return open(Path(self.path(folder), name), "rb", opener=_open_at_once)

    def write_whole(self, folder: str, name: str, data: bytes) -> None:
        path = Path(self.path(folder), name)
        beside = path.with_name(f".{name}.{os.getpid()}")
        with beside.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        _keep_names(path.parent)  # of the files that were written before, so that this name never comes to disk before theirs
        beside.replace(path)
        try:
            _keep_names(path.parent)
        except OSError:
            path.unlink(missing_ok=True)
            raise

    def remove(self, folder: str, first: str) -> None:
        path = Path(self.path(folder))
        if path.is_symlink():  # somebody moved it: what it names is theirs
            path.unlink()
            return
        if Path(path, first).exists():
            Path(path, first).unlink()
            _keep_names(path)
        shutil.rmtree(path, ignore_errors=True)


class RemotePlace(Place):
    """What fsspec reaches. A file there appears whole once it is closed, as object stores have it."""

    is_local = False

    def __init__(self, root: str) -> None:
        from fsspec.core import url_to_fs  # noqa: PLC0415 - it comes with torch

        self.root = root.rstrip("/")
        self._files: Any
        self._files, self._inside = url_to_fs(self.root)

    def names(self) -> list[str]:
        self._files.invalidate_cache()
        try:
            found = self._files.ls(self._inside, detail=True)
        except FileNotFoundError:
            return []
        return [posixpath.basename(entry["name"].rstrip("/")) for entry in found if entry["type"] == "directory"]

    def claim(self, folder: str, marked: bool = False) -> bool:
        """It is always marked: an object store has no empty folders. It keeps two at the same instant not apart, either."""
        self._files.invalidate_cache()
        if self._files.exists(self._name(folder)):
            return False
        self._files.makedirs(self._name(folder), exist_ok=True)
        self._files.pipe_file(self._name(folder, CLAIM), b"")
        return True

    def has(self, folder: str, name: str) -> bool:
        self._files.invalidate_cache()
        return bool(self._files.exists(self._name(folder, name)))

    def files(self, folder: str) -> list[str]:
        self._files.invalidate_cache()
        root = self._name(folder)
        found = (posixpath.relpath(name, root) for name in self._files.find(root))
        return sorted(name for name in found if name != CLAIM)

    def is_empty(self, folder: str) -> bool:
        return not self.files(folder)

    def put(self, folder: str, name: str, file: Path) -> None:
        target = self._name(folder, name)
        self._files.makedirs(posixpath.dirname(target), exist_ok=True)
        self._files.put_file(str(file), target)

    def open(self, folder: str, name: str) -> IO[bytes]:
        stream: IO[bytes] = self._files.open(self._name(folder, name), "rb")
        return stream

    def write_whole(self, folder: str, name: str, data: bytes) -> None:
        self._files.pipe_file(self._name(folder, name), data)

    def remove(self, folder: str, first: str) -> None:
        for each in (self._name(folder, first), self._name(folder)):
            if self._files.exists(each):
                self._files.rm(each, recursive=True)

    def _name(self, *parts: str) -> str:
        return posixpath.join(self._inside, *parts)


def _open_at_once(path: str, flags: int) -> int:
    """A pipe that bears the name of a file must not be waited for."""
    return os.open(path, flags | os.O_NONBLOCK)


def _keep_names(folder: str | Path) -> None:
    """Names of a folder survive a loss of power only once the folder itself is on disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _NO_SYNC_OF_FOLDERS:  # which some network file systems do not
            raise
    finally:
        os.close(handle)
