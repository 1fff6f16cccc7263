"""The drill's own folder: new, below the one that is drilled, and gone at the end."""

from __future__ import annotations

import secrets
import shutil
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from fullstep.errors import Fault, InputError


class DrillFolder:
    """A context: the folder is there inside it.

    Args:
        to: a folder of this machine, or a URL that fsspec reaches
        keep: leave it there

    Raises:
        InputError: on entering, where nothing can be made there
    """

    def __init__(self, to: str, keep: bool) -> None:
        name = f"fullstep-drill-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"
        self._to, self._keep = to, keep
        self.path = f"{to.rstrip('/')}/{name}" if is_url(to) else str(Path(to).absolute() / name)
        self._made: list[Path] = []

    def __enter__(self) -> DrillFolder:
        try:
            self._make()
        except ImportError as error:
            raise InputError(Fault("--to", f'"{self._to}": {error}', "a folder, or a URL whose library is installed")) from None
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            found = f'"{self._to}": nothing can be made there: {why}'
            raise InputError(Fault("--to", found, "a folder or URL that can be written")) from None
        return self

    def _make(self) -> None:
        if is_url(self._to):
            files, inside = _remote(self.path)
            files.makedirs(inside, exist_ok=False)
            return
        path = Path(self.path)
        self._made = [parent for parent in path.parents if not parent.exists()]
        path.mkdir(parents=True)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._keep:
            return
        if is_url(self._to):
            files, inside = _remote(self.path)
            with suppress(OSError):
                files.rm(inside, recursive=True)
            return
        shutil.rmtree(self.path, ignore_errors=True)
        for parent in self._made:
            with suppress(OSError):
                parent.rmdir()


def is_url(to: str) -> bool:
    """Whether it names a place that fsspec reaches.

    >>> is_url("s3://bucket/runs"), is_url("/mnt/runs")
    (True, False)
    """
    return "://" in to


def _remote(url: str) -> tuple[Any, str]:
    from fsspec.core import url_to_fs  # noqa: PLC0415 - it comes with torch

    files, inside = url_to_fs(url)
    return files, str(inside)
