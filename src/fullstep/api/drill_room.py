"""Whether memory and disk suffice for a drill, before it begins."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fullstep.errors import Fault, InputError, UnsupportedError
from fullstep.job import Settings
from fullstep.ledger import Checkpoint
from fullstep.models import shape_from_config
from fullstep.quantities import GIB
from fullstep.quantities.dtypes import DTYPE_BYTES

_PROCESS_BYTES = 0.7 * GIB
"""torch and transformers loaded, per rank"""
_ON_DISK = 4
"""two checkpoints, the last state of another training, and raw files of the same size"""
_STAGED = {"sync": 0.0, "thread": 1.0, "process": 3.0, "compares": 2.0}
"""checkpoints in host memory beside the training: while one is saved, or while two last states are compared"""
_REMEDY = "Drill fewer blocks of the model: --layers 2."


def require_room(
    settings: Settings, elsewhere: Settings | None, config: Mapping[str, Any], predicted: Checkpoint | None,
    *, device: str, to: str, mode: str,
) -> None:  # fmt: skip
    """Returns where a drill can begin, or where nothing is known of it.

    Args:
        settings: of the worksheet
        elsewhere: of the other ranks or layout; None: there are none
        config: of the model
        predicted: its checkpoint; None: not known
        device: cpu or cuda
        to: folder or URL of the checkpoints
        mode: of saving

    Raises:
        InputError: host memory or disk would not suffice
    """
    try:
        parameters = shape_from_config(config).parameters
    except UnsupportedError:
        return
    faults = []
    needed = host_bytes(settings, parameters, predicted, device=device, mode=mode)
    if elsewhere is not None:
        needed = max(needed, host_bytes(elsewhere, parameters, predicted, device=device, mode="compares"))
    there = _available_bytes()
    if there is not None and needed > there:
        found = f"about {needed / GIB:,.1f} GiB of host memory for all ranks, and {there / GIB:,.1f} GiB are free"
        faults.append(Fault("fullstep drill", found, "", _REMEDY))
    free = None if "://" in to else _free_bytes(Path(to))
    if predicted is not None and free is not None and _ON_DISK * predicted.resumable_bytes > free:
        found = f"{_ON_DISK * predicted.resumable_bytes / GIB:,.1f} GiB of disk for a while, and {free / GIB:,.1f} GiB are free"
        faults.append(Fault("--to", found, "", f"{_REMEDY} Or another disk."))
    if faults:
        raise InputError(*faults)


def host_bytes(settings: Settings, parameters: int, predicted: Checkpoint | None, *, device: str, mode: str) -> float:
    """Host memory of all ranks together: each builds the whole model; on processors state and gradients are there as well.

    Args:
        settings: of the worksheet
        parameters: of the whole model
        predicted: its checkpoint; None: not known
        device: cpu or cuda
        mode: of saving, or compares
    """
    ranks = settings.layout.data_parallel
    weights = parameters * DTYPE_BYTES[settings.precision.weights]
    saved = 0.0 if predicted is None else predicted.resumable_bytes
    built = ranks * (_PROCESS_BYTES + weights)
    if device != "cpu":
        return built + _STAGED[mode] * saved
    replicas = ranks / settings.layout.state_ranks
    beside = _STAGED[mode] * saved * (replicas if mode == "compares" else 1)
    return built + replicas * (saved + weights) + beside


def _available_bytes() -> int | None:
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1]) * 1024
    return None


def _free_bytes(path: Path) -> int | None:
    """On the disk that a folder is on, or will be."""
    with suppress(OSError):
        there = next(parent for parent in (path.absolute(), *path.absolute().parents) if parent.exists())
        return shutil.disk_usage(there).free
    return None
