"""Whether memory and disk suffice for a drill, before it begins."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from fullstep.errors import Fault, InputError, UnsupportedError
from fullstep.job import Settings
from fullstep.lab.drill import Wanted, is_url
from fullstep.ledger import Checkpoint
from fullstep.models import shape_from_config
from fullstep.physics.checkpointing.figures import figure
from fullstep.quantities import GIB
from fullstep.quantities.dtypes import DTYPE_BYTES

_PROCESS_BYTES = 0.7 * GIB
"""torch and transformers loaded, per rank"""
_ON_DISK = 4
"""two checkpoints, the last state of another training, and raw files of the same size"""
_COMPARED = 2.0
"""last states in host memory beside the training"""


def require_room(wanted: Wanted, predicted: Checkpoint | None) -> None:
    """Returns where a drill can begin, or where nothing is known of it.

    Args:
        wanted: what is to be drilled
        predicted: its checkpoint; None: not known

    Raises:
        InputError: host memory or disk would not suffice
    """
    try:
        shape = shape_from_config(wanted.config)
    except UnsupportedError:
        return
    needed = host_bytes(wanted.settings, shape.parameters, predicted, device=wanted.device, mode=wanted.mode)
    if wanted.elsewhere is not None:
        needed = max(needed, host_bytes(wanted.elsewhere.settings, shape.parameters, predicted, device=wanted.device, mode="compares"))
    fewer_blocks, faults = _fewer_blocks(len(shape.layers)), []
    there = _available_bytes()
    if there is not None and needed > there:
        found = f"about {needed / GIB:,.1f} GiB of host memory for all ranks, and {there / GIB:,.1f} GiB are free"
        remedies = [fewer_blocks, "Fewer ranks take less: --cpu 1." if wanted.device == "cpu" and wanted.ranks > 1 else ""]
        faults.append(Fault("fullstep drill", found, "", _joined(*remedies) or "A machine with more memory, or a smaller model."))
    for where, path, size_bytes in _on_disk(wanted, predicted):
        free = _free_bytes(path)
        if free is not None and size_bytes > free:
            found = f"{size_bytes / GIB:,.1f} GiB of disk for a while, and {free / GIB:,.1f} GiB are free"
            faults.append(Fault(where, found, "", _joined(fewer_blocks, "Or another disk." if fewer_blocks else "Use another disk.")))
    if faults:
        raise InputError(*faults)


def _on_disk(wanted: Wanted, predicted: Checkpoint | None) -> list[tuple[str, Path, float]]:
    """(what names the disk, a folder on it, bytes) of this machine: a full export lies beside checkpoints that lie here, else by itself."""
    if predicted is None:
        return []
    export_bytes = predicted.export_bytes if wanted.exports else 0.0
    if is_url(wanted.to):
        return [("TMPDIR", Path(tempfile.gettempdir()), export_bytes)]
    return [("--to", Path(wanted.to), _ON_DISK * predicted.resumable_bytes + export_bytes)]


def _fewer_blocks(blocks: int) -> str:
    """Where there are more than one.

    >>> _fewer_blocks(32), _fewer_blocks(2), _fewer_blocks(1)
    ('Drill fewer blocks of the model: --layers 2.', 'Drill fewer blocks of the model: --layers 1.', '')
    """
    return f"Drill fewer blocks of the model: --layers {min(2, blocks - 1)}." if blocks > 1 else ""


def _joined(*sentences: str) -> str:
    return " ".join(filter(None, sentences))


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
        return built + _staged(mode) * saved
    replicas = ranks / settings.layout.state_ranks
    beside = _staged(mode) * saved * (replicas if mode == "compares" else 1)
    return built + replicas * (saved + weights) + beside


def _staged(mode: str) -> float:
    """Checkpoints in host memory beside the training: while one is saved, or while two last states are compared."""
    if mode == "compares":
        return _COMPARED
    return 0.0 if mode == "sync" else figure("staged_by_process" if mode == "process" else "staged_by_thread").value.likely


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
