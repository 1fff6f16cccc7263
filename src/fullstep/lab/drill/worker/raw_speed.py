"""What the storage gives as many raw writers and readers as there are ranks: the yardstick for checkpoints."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch.distributed as dist

_CHUNK_BYTES = 1 << 23
_PASSES = 2
"""the first one warms up and is not counted"""


def raw_speed(folder: str, bytes_per_rank: int) -> dict[str, float]:
    """Writes and reads a file of random bytes on every rank at once. All ranks must call it.

    Args:
        folder: path or URL
        bytes_per_rank: how much each writes

    Returns:
        seconds of the slowest rank: ``write_seconds`` with all of it on the disk (fsync), ``read_seconds``, which the system's cache may
        have answered; and the bytes of all ranks together
    """
    chunk = os.urandom(_CHUNK_BYTES)
    name = f"{folder.rstrip('/')}/raw-{dist.get_rank()}"
    found: dict[str, float] = {"bytes": float(bytes_per_rank * dist.get_world_size())}
    try:
        for _ in range(_PASSES):
            found["write_seconds"] = _slowest(lambda: _write(name, chunk, bytes_per_rank))
            found["read_seconds"] = _slowest(lambda: _read(name))
            _remove(name)
    finally:
        with suppress(OSError):
            _remove(name)
    return found


def _slowest(action: Callable[[], None]) -> float:
    dist.barrier()
    begun = time.perf_counter()
    action()
    everywhere: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everywhere, time.perf_counter() - begun)
    return float(max(everywhere))


def _write(name: str, chunk: bytes, size_bytes: int) -> None:
    with _opened(name, "wb") as stream:
        left = size_bytes
        while left > 0:
            stream.write(chunk if left >= len(chunk) else chunk[:left])
            left -= len(chunk)
        if "://" not in name:
            stream.flush()
            os.fsync(stream.fileno())


def _read(name: str) -> None:
    with _opened(name, "rb") as stream:
        while stream.read(_CHUNK_BYTES):
            pass


def _opened(name: str, mode: str) -> Any:
    if "://" not in name:
        return open(name, mode)  # noqa: PTH123 - the caller closes it
    import fsspec  # noqa: PLC0415 - it comes with torch

    return fsspec.open(name, mode).open()


def _remove(name: str) -> None:
    if "://" not in name:
        os.remove(name)  # noqa: PTH107
        return
    from fsspec.core import url_to_fs  # noqa: PLC0415

    files, inside = url_to_fs(name)
    if files.exists(inside):
        files.rm(inside)
