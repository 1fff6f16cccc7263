"""Traces that were made before, by content: the same model, settings, libraries and tracer give the same trace."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import fullstep
from fullstep.job import Settings
from fullstep.lab.trace.front.wire import WireError, decode_trace, encode_trace
from fullstep.ledger import Trace
from fullstep.user_cache import cache_folder

MOST_ENTRIES = 500
_LARGEST_ENTRY_BYTES = 2**26
_PARTS = ("method", "precision", "optimizer", "batch", "step", "layout")
"""sections that a trace hangs on; of the machine only the card, its memory and the number of GPUs"""
_SOURCES = ("lab", "job", "ledger", "hardware")
"""rooms whose code and tables decide what a trace says"""


def cache_key(settings: Settings, config: Mapping[str, Any], name: str, *, full_depth: bool, versions: Mapping[str, str]) -> str:
    """What a trace is kept under: a digest of all that decides what it says.

    Args:
        settings: of the worksheet; goal, data, network and the like do not count
        config: of the model
        name: of the model, which notes of a trace may mention
        full_depth: whether every block is traced
        versions: of the libraries
    """
    machine = settings.machine
    content = {
        "name": name,
        "config": dict(config),
        "settings": {part: asdict(getattr(settings, part)) for part in _PARTS},
        "stated": {part: values for part, values in settings.worksheet.as_dict().items() if part in _PARTS},
        "card": None if machine.card is None else machine.card.key,
        "memory_bytes": [machine.gpu_memory_bytes, machine.usable_bytes],
        "gpus": [machine.gpus, machine.nodes],
        "full_depth": full_depth,
        "versions": {**versions, "fullstep": fullstep.__version__},
        "sources": _sources_digest(),
    }
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def kept_trace(key: str) -> Trace | None:
    """The trace under this key with 0 seconds; None where there is none that can be read."""
    folder = cache_folder("traces")
    if folder is None:
        return None
    file = folder / f"{key}.json"
    try:
        if not file.is_file() or file.stat().st_size > _LARGEST_ENTRY_BYTES:
            return None
        digest, _, text = file.read_bytes().partition(b"\n")
        if digest.decode("ascii") != hashlib.sha256(text).hexdigest():
            return None
        return decode_trace(json.loads(text))._replace(seconds=0)
    except (OSError, ValueError, WireError, RecursionError):
        return None


def keep_trace(key: str, trace: Trace) -> None:
    """Keeps it under this key, and of all entries the newest 500. A folder that cannot be written is no error."""
    folder = cache_folder("traces")
    if folder is None:
        return
    text = json.dumps(encode_trace(trace), separators=(",", ":")).encode("utf-8")
    part = ""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=folder, suffix=".part", delete=False) as file:
            part = file.name
            file.write(hashlib.sha256(text).hexdigest().encode("ascii") + b"\n" + text)
        os.replace(part, folder / f"{key}.json")  # noqa: PTH105 - the name may be a text
        _drop_oldest(folder)
    except OSError:
        return
    finally:
        if part:
            with suppress(OSError):
                Path(part).unlink(missing_ok=True)


def _drop_oldest(folder: Path) -> None:
    """All but the newest entries; what a process that was killed left half written grows old with them."""
    with os.scandir(folder) as found:
        entries = [(entry.stat().st_mtime, entry.path) for entry in found if entry.name.endswith((".json", ".part"))]
    for _, path in sorted(entries, reverse=True)[MOST_ENTRIES:]:
        with suppress(OSError):
            Path(path).unlink()


@cache
def _sources_digest() -> str:
    """Digest of the code and tables of these rooms, so that a changed tracer or card never answers from an old cache."""
    root = Path(fullstep.__file__).parent
    digest = hashlib.sha256()
    for room in _SOURCES:
        for path in sorted((root / room).rglob("*")):
            if path.suffix in (".py", ".json", ".toml", ".csv"):
                text = path.read_bytes()
                digest.update(f"{path.relative_to(root).as_posix()} {len(text)}\n".encode())
                digest.update(text)
    return digest.hexdigest()
