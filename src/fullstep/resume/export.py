"""The model in the form in which others use it: safetensors as transformers reads them, or the adapter alone."""

from __future__ import annotations

import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

from fullstep.resume.errors import SaveError
from fullstep.resume.manifest import MANIFEST, Manifest
from fullstep.resume.places import Place
from fullstep.resume.ranks import Ranks
from fullstep.resume.sealed import seal

_FILE = "model.safetensors"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """A model that was written."""

    folder: str
    bytes: int
    files: int
    gather_seconds: float
    """putting shards together in the host memory of rank 0"""
    write_seconds: float


def export_model(folder: str | Path, model: nn.Module, *, dtype: torch.dtype | None = None) -> Exported:
    """Writes the whole model, or of peft's model the adapter alone, into a new folder; its manifest comes last. All ranks must call it.

    Rank 0 holds all of it in host memory for a while.

    Args:
        folder: new; a path or a URL of fsspec
        model: as it is trained, wrapped or not
        dtype: of floating tensors; None: as they train

    Raises:
        SaveError: the folder is there, or cannot be written
    """
    place, name = _parts(folder)
    group = dist.new_group(backend="gloo") if dist.is_available() and dist.is_initialized() else None
    try:
        return _exported(place, name, model, dtype, Ranks(group))
    finally:
        if group is not None:
            dist.destroy_process_group(group)


def _exported(place: Place, name: str, model: nn.Module, dtype: torch.dtype | None, ranks: Ranks) -> Exported:
    begun = time.perf_counter()
    options = StateDictOptions(full_state_dict=True, cpu_offload=True, ignore_frozen_params=hasattr(_bare(model), "peft_config"))
    state = {key: _cast(value, dtype) for key, value in get_model_state_dict(model, options=options).items()}
    gathered = time.perf_counter()
    manifest = ranks.from_first(partial(_write, place, name, _bare(model), state), SaveError)
    return Exported(
        folder=place.path(name), bytes=manifest.bytes, files=len(manifest.files) + 1,
        gather_seconds=gathered - begun, write_seconds=time.perf_counter() - gathered,
    )  # fmt: skip


def _parts(folder: str | Path) -> tuple[Place, str]:
    """The folder's place and its name there."""
    if isinstance(folder, str) and "://" in folder:
        root, _, name = folder.rstrip("/").rpartition("/")
        return Place.at(root), name
    path = Path(folder).absolute()
    return Place.at(path.parent), path.name


def _bare(model: nn.Module) -> nn.Module:
    """Without DDP's wrapper."""
    inner = getattr(model, "module", None)
    return inner if isinstance(inner, nn.Module) and isinstance(model, nn.parallel.DistributedDataParallel) else model


def _cast(value: Any, dtype: torch.dtype | None) -> Any:
    return value.to(dtype) if dtype is not None and isinstance(value, Tensor) and value.is_floating_point() else value


def _write(place: Place, name: str, model: nn.Module, state: dict[str, Any]) -> Manifest:
    """On rank 0; what was written is gone again where it fails."""
    if not place.claim(name):
        raise SaveError(f"{place.show(name)} is there, and nothing is written over", "Name a new folder.")
    try:
        _fill(place, name, model, state)
        return seal(place, name, Manifest(step=0, ranks=1, parts=("export",), files={}, versions={"torch": torch.__version__}))
    except BaseException:
        with suppress(Exception):
            place.remove(name, MANIFEST)
        raise


def _fill(place: Place, name: str, model: nn.Module, state: dict[str, Any]) -> None:
    if place.is_local:
        _write_files(Path(place.path(name)), model, state)
        return
    with tempfile.TemporaryDirectory(prefix="fullstep-export-") as room:
        _write_files(Path(room), model, state)
        for file in sorted(Path(room).rglob("*")):
            if file.is_file():
                place.put(name, file.relative_to(room).as_posix(), file)


def _write_files(folder: Path, model: nn.Module, state: dict[str, Any]) -> None:
    save = getattr(model, "save_pretrained", None)
    if save is not None:
        save(str(folder), state_dict=_untied(model, state), safe_serialization=True)
        return
    from safetensors.torch import save_file  # noqa: PLC0415 - comes with transformers

    shared = _shared(model)
    own = {key: value.contiguous() for key, value in state.items() if isinstance(value, Tensor) and key not in shared}
    save_file(own, folder / _FILE, {"format": "pt"})


def _shared(model: nn.Module) -> set[str]:
    """Names of parameters that have another name before: safetensors hold each once, as transformers has it."""
    return {name for name, _ in model.named_parameters(remove_duplicate=False)} - {name for name, _ in model.named_parameters()}


def _untied(model: nn.Module, state: dict[str, Any]) -> dict[str, Any]:
    """Shared weights share memory again, as transformers expects of them; gathering gave each name its own."""
    names: dict[int, str] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        first = names.setdefault(id(parameter), name)
        if first != name and first in state and name in state:
            state[name] = state[first]
    return state
