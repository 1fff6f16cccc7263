"""A block of one's own program that is watched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fullstep.probing.watch import WATCHING, Watch


class _Enough(BaseException):
    """Ends the block: as many steps as were asked for have been made. No error, so that nobody takes it for one."""


@contextmanager
def probing(folder: str | Path, *, steps: int | None = None) -> Iterator[None]:
    """Watches the steps that are made inside.

    Where the whole program is watched already (``fullstep probe -- CMD``), this adds nothing.

    Args:
        folder: for the files of all ranks; it is made where it is not there
        steps: leaves the block after so many; None: it ends by itself

    Raises:
        OSError: the folder cannot be made
    """
    if WATCHING:
        yield
        return
    Path(folder).mkdir(parents=True, exist_ok=True)
    watch = Watch(Path(folder), steps=steps, enough=_leave)
    watch.begin()
    try:
        yield
    except _Enough:
        watch.end({"end": "enough"})
    except BaseException as error:
        watch.failed(error)
        raise
    finally:
        watch.end()


def _leave() -> None:
    raise _Enough
