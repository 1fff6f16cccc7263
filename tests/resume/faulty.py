"""Faults on purpose, in trainers and in the processes that save for them: the variable FAULTS says which, as JSON.

- while: a file; the faults below happen only as long as it is there
- on: the ranks on which they happen; all, where it is not given
- slow_write: seconds that each write into a file of a checkpoint takes longer
- waits_for: a file; nothing is written until it is there
- slow_manifest, slow_room: seconds before the manifest is written, before older checkpoints are taken away
- full_after: bytes of a file that can be written until the disk is full
- dies_after: bytes of a file that can be written until the process is killed
- raises_in: a method of TrainingState, or "stage"
"""

from __future__ import annotations

import errno
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

_FAULTS: dict[str, Any] = json.loads(os.environ.get("FAULTS", "{}"))


def happens(name: str) -> Any:
    """The fault's size; None: it does not happen here and now."""
    here = int(os.environ.get("RANK", "0")) in _FAULTS.get("on", range(99))
    now = "while" not in _FAULTS or Path(_FAULTS["while"]).exists()
    return _FAULTS.get(name) if here and now else None


def install() -> None:
    """Before the library is used, in each process that uses it."""
    _FAULTS.clear()
    _FAULTS.update(json.loads(os.environ.get("FAULTS", "{}")))
    if not _FAULTS:
        return
    from torch.distributed.checkpoint.staging import DefaultStager  # noqa: PLC0415 - not without need

    from fullstep.resume import checkpoints, state, storage  # noqa: PLC0415

    storage.DigestedStream.write = _write(storage.DigestedStream.write)  # type: ignore[method-assign]
    storage.write_manifest = _later(storage.write_manifest, "slow_manifest")
    checkpoints.make_room = _later(checkpoints.make_room, "slow_room")
    for kind, name in ((state.TrainingState, "to_save"), (state.TrainingState, "to_load"), (DefaultStager, "stage")):
        setattr(kind, name, _raising(getattr(kind, name), name))


def _write(plain: Any) -> Any:
    def write(stream: Any, data: Any) -> int:
        time.sleep(happens("slow_write") or 0.0)
        _wait_for(happens("waits_for"))
        if (full := happens("full_after")) is not None and stream.tell() >= full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "a file of the checkpoint")
        if (last := happens("dies_after")) is not None and stream.tell() >= last:
            os.kill(os.getpid(), signal.SIGKILL)
        written: int = plain(stream, data)
        return written

    return write


def _wait_for(name: str | None) -> None:
    deadline = time.monotonic() + 120.0
    while name is not None and not Path(name).exists():
        assert time.monotonic() < deadline, f"{name} does not come"
        time.sleep(0.002)


def _later(plain: Any, name: str) -> Any:
    def call(*args: Any, **named: Any) -> Any:
        time.sleep(happens(name) or 0.0)
        return plain(*args, **named)

    return call


def _raising(plain: Any, name: str) -> Any:
    def call(*args: Any, **named: Any) -> Any:
        if happens("raises_in") == name:
            raise ValueError("a part of this rank cannot be had")
        return plain(*args, **named)

    return call
