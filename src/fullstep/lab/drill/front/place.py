"""The drill's own folder: new, below the one that is drilled, and gone at the end."""

from __future__ import annotations

import secrets
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from fullstep.errors import Fault, InputError
from fullstep.errors.stops import stoppable
from fullstep.resume.places import CLAIM, Place

_ALLOWED = "a folder, or a URL of storage that several processes reach and write, such as s3://bucket/runs"
_REMEDY = "For example --to /mnt/runs."
_OF_ONE_PROCESS = ("memory", "data")
"""what is written there is seen by no other process; the ranks of each leg are new ones"""
_WRITERS = ("mkdir", "makedirs", "_mkdir", "_makedirs", "pipe_file", "_pipe_file", "cp_file", "_cp_file")
"""methods of which a class of fsspec that writes has one of its own"""


class DrillFolder:
    """A context: the folder is there inside it.

    Args:
        to: a folder of this machine, or a URL that fsspec reaches
        keep: leave it there

    Raises:
        InputError: on entering, where nothing can be made there
    """

    def __init__(self, to: str, keep: bool) -> None:
        self._name = f"fullstep-drill-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"
        self._to, self._keep = to, keep
        self._place: Place | None = None
        self._made: list[Path] = []

    @property
    def path(self) -> str:
        """Of the folder; a URL where ``to`` is one."""
        assert self._place is not None
        return self._place.path(self._name)

    def __enter__(self) -> DrillFolder:
        try:
            with stoppable():  # other machines may take their time to answer
                self._make()
        except BaseException as error:
            self._remove()
            if not isinstance(error, Exception):
                raise
            raise InputError(Fault("--to", f'"{self._to}": {_why_not(error)}', "a folder or URL that can be written", _REMEDY)) from None
        return self

    def _make(self) -> None:
        self._place = Place.at(self._to)
        if self._place.is_local:
            self._made = [parent for parent in Path(self.path).parents if not parent.exists()]
        self._place.claim(self._name)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not self._keep:
            self._remove()

    def _remove(self) -> None:
        """With the parents that were made for it, where nothing else has come into them."""
        if self._place is None:
            return
        with suppress(Exception):  # a store may answer no more: the drill's verdict is there nonetheless
            self._place.remove(self._name, CLAIM)
        for parent in self._made:
            with suppress(OSError):
                parent.rmdir()


def _why_not(error: Exception) -> str:
    if isinstance(error, FileExistsError):
        return "nothing can be made there: a file is in the way"
    return f"nothing can be made there: {getattr(error, 'strerror', None) or str(error) or type(error).__name__}"


def is_url(to: str) -> bool:
    """Whether it names a place that fsspec reaches.

    >>> is_url("s3://bucket/runs"), is_url("/mnt/runs")
    (True, False)
    """
    return "://" in to


def require_place(to: str) -> None:
    """Returns where checkpoints of several processes can go, as far as that is known without asking the storage.

    Args:
        to: folder or URL

    Raises:
        InputError: the URL's kind is unknown, lives inside of one process, cannot be written, or its library is missing
    """
    if not is_url(to):
        return
    if why := _fault_of_kind(to.partition("://")[0]):
        raise InputError(Fault("--to", f'"{to[:80]}": {why}', _ALLOWED, _REMEDY))


def _fault_of_kind(kind: str) -> str:
    """What is wrong with what stands before ``://``, in words; empty: nothing."""
    from fsspec import get_filesystem_class  # noqa: PLC0415 - it comes with torch

    if not kind:
        return "a URL without its kind before ://"
    if "::" in kind:
        return "a URL of several kinds"
    if kind in _OF_ONE_PROCESS:
        return f"files of {kind}:// live inside of one process, and a drill uses several"
    try:
        return "" if _writes(get_filesystem_class(kind)) else f"{kind}:// cannot be written"
    except ImportError as error:
        return f"its library is not installed: {error}"
    except ValueError:
        return f"fsspec does not know {kind}://"


def _writes(kind: Any) -> bool:
    """Whether a class of fsspec has methods of its own for that: its bases have them all, and do nothing in them."""
    from fsspec.asyn import AsyncFileSystem  # noqa: PLC0415

    return any(name in vars(each) for each in kind.__mro__ if each not in AsyncFileSystem.__mro__ for name in _WRITERS)
