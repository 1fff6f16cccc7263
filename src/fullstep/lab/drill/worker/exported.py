"""A full export of the model: written, read back, and compared tensor by tensor."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

from fullstep.lab.drill.worker.training import Training
from fullstep.resume import export_model
from fullstep.resume.digests import digest_of

_FOLDER = "export"


def export_and_read_back(training: Training, folder: Path) -> dict[str, Any]:
    """Writes the export into a new folder of this machine, and takes it away again. All ranks must call it.

    Args:
        training: whose model it is
        folder: in which the new one is made, on the disk of the checkpoints where that is one of this machine

    Returns:
        files, bytes and seconds of the export, how many tensors it has, and which of them came back otherwise than they are in the training
    """
    model, where = training.program.model, folder / _FOLDER
    begun = time.perf_counter()
    written = export_model(where, model)
    seconds = time.perf_counter() - begun
    whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    found: dict[str, Any] = {"seconds": seconds, "bytes": written.bytes, "files": written.files, "tensors": 0, "differing": []}
    if dist.get_rank() == 0:
        bare = getattr(model, "module", model) if isinstance(model, nn.parallel.DistributedDataParallel) else model
        tensors, back = _adapter(bare, whole, where) if hasattr(bare, "peft_config") else _model(bare, whole, where)
        found["tensors"] = len(tensors)
        found["differing"] = [name for name, value in tensors.items() if name not in back or digest_of(back[name]) != digest_of(value)]
        shutil.rmtree(where, ignore_errors=True)
    dist.barrier()
    return found


def _model(model: nn.Module, whole: dict[str, Any], folder: Path) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """(as it trains, as the class reads it from the folder)."""
    kind: Any = next(each for each in type(model).__mro__ if each.__module__.startswith("transformers."))  # FSDP puts a class before it
    dtype = next(value.dtype for value in whole.values() if torch.is_floating_point(value))
    back = kind.from_pretrained(folder, dtype=dtype)
    return {name: value for name, value in whole.items() if isinstance(value, Tensor)}, back.state_dict()


def _adapter(model: nn.Module, whole: dict[str, Any], folder: Path) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """(as it trains, as it is in the file)."""
    from peft import get_peft_model_state_dict  # noqa: PLC0415 - where there is an adapter
    from safetensors.torch import load_file  # noqa: PLC0415

    return get_peft_model_state_dict(model, state_dict=whole), load_file(folder / "adapter_model.safetensors")
