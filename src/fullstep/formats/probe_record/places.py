"""Where records lie: a folder of this machine, or whatever fsspec reaches by a URL. Files lie flat in it."""

from __future__ import annotations

import errno
import os
import posixpath
import stat
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from fullstep.errors import Fault, InputError
from fullstep.errors.stops import stoppable

_ALLOWED = "a folder, or a URL that fsspec reaches, such as s3://bucket/evidence"
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EXDEV)
"""what file systems without hard links say"""


class Folder(ABC):
    """A flat folder of small files. Whatever goes wrong with its storage is an InputError that names it."""

    @abstractmethod
    def names(self) -> list[str]:
        """Of what lies in it and ends in .json, sorted; of a single file its own name.

        Raises:
            InputError: there is nothing of that name, or it cannot be looked into
        """

    @abstractmethod
    def read(self, name: str, most: int) -> bytes:
        """The first ``most`` bytes of a file.

        Raises:
            InputError: it is no file, or cannot be read
        """

    @abstractmethod
    def write_new(self, name: str, data: bytes) -> bool:
        """A file that is there whole or not at all; False: one of that name is there, and stays as it is.

        Raises:
            InputError: it cannot be written
        """


def folder_at(where: str) -> Folder:
    """The folder that a path or URL names.

    Raises:
        InputError: its kind is unknown, or what reaches it is not installed
    """
    if not where.strip() or "\0" in where:
        raise InputError(Fault("evidence", "an empty name" if not where.strip() else "a name that no file has", _ALLOWED))
    return RemoteFolder(where) if "://" in where else LocalFolder(where)


class LocalFolder(Folder):
    """Of this machine."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._root = Path(where)

    def names(self) -> list[str]:
        try:
            if not self._root.is_dir():
                self._root.stat()
                return [self._root.name]
            return sorted(entry.name for entry in os.scandir(self._root) if entry.name.endswith(".json") and not entry.name.startswith("."))
        except OSError as error:
            raise _fault(self._where, error) from None

    def read(self, name: str, most: int) -> bytes:
        path = self._root / name if self._root.is_dir() else self._root
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe that bears the name of a file must not be waited for
            with os.fdopen(handle, "rb") as stream:
                if not stat.S_ISREG(os.fstat(handle).st_mode):
                    raise InputError(Fault(str(path), "no file, but a pipe, device or folder", "a file"))
                return stream.read(most)
        except OSError as error:
            raise _fault(str(path), error) from None

    def write_new(self, name: str, data: bytes) -> bool:
        beside = self._root / f".{name}.{os.getpid()}"
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            try:
                _write(beside, data)
                return _link(beside, self._root / name, data)
            finally:
                beside.unlink(missing_ok=True)
        except OSError as error:
            raise _fault(self._where, error) from None


class RemoteFolder(Folder):
    """What fsspec reaches. It keeps two writers of one name at the same instant not apart where the storage does not."""

    def __init__(self, where: str) -> None:
        self._where = where
        try:
            from fsspec.core import url_to_fs  # noqa: PLC0415 - it comes with torch
        except ImportError:
            remedy = "Install it with: pip install fsspec. It comes with torch."
            raise InputError(Fault(where, "a URL, and fsspec is not installed", _ALLOWED, remedy)) from None
        self._files: Any
        try:
            with stoppable():
                self._files, self._inside = url_to_fs(where)
        except Exception as error:
            raise _fault(where, error) from None

    def names(self) -> list[str]:
        try:
            with stoppable():
                self._files.invalidate_cache()
                if self._files.isfile(self._inside):
                    return [posixpath.basename(self._inside)]
                found = self._files.ls(self._inside, detail=True)
        except Exception as error:
            raise _fault(self._where, error) from None
        names = [posixpath.basename(str(entry["name"]).rstrip("/")) for entry in found if entry.get("type") == "file"]
        return sorted(name for name in names if name.endswith(".json") and not name.startswith("."))

    def read(self, name: str, most: int) -> bytes:
        try:
            with stoppable():
                path = self._inside if self._files.isfile(self._inside) else posixpath.join(self._inside, name)
                with self._files.open(path, "rb") as stream:
                    return bytes(stream.read(most))
        except Exception as error:
            raise _fault(posixpath.join(self._where, name), error) from None

    def write_new(self, name: str, data: bytes) -> bool:
        path = posixpath.join(self._inside, name)
        try:
            with stoppable():
                self._files.invalidate_cache()
                if self._files.exists(path):
                    return False
                self._files.makedirs(self._inside, exist_ok=True)
                self._files.pipe_file(path, data)
                return True
        except Exception as error:
            raise _fault(self._where, error) from None


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


def _link(beside: Path, path: Path, data: bytes) -> bool:
    """Gives a written file its name, unless that is taken."""
    try:
        os.link(beside, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        try:
            with path.open("xb") as stream:
                stream.write(data)
        except FileExistsError:
            return False
    return True


def _fault(where: str, error: Exception) -> InputError:
    if isinstance(error, FileNotFoundError):
        return InputError(Fault(where, "there is no such file or folder", _ALLOWED))
    if isinstance(error, ImportError):
        return InputError(Fault(where, f"its library is not installed: {str(error)[:160]}", _ALLOWED))
    said = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return InputError(Fault(where, f"the storage says: {said[:160]}", _ALLOWED))
