"""A model spread over real ranks as the worksheet's layout says, by torch's own DDP and FSDP2."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from fullstep.job import Settings
from fullstep.lab.program.dtypes import DTYPES


@dataclass(frozen=True, slots=True)
class Spread:
    """A model in its layout."""

    model: nn.Module
    syncs: Callable[[bool], contextlib.AbstractContextManager[Any]]
    """around a micro-batch, told whether it is the step's last one"""


def spread(model: nn.Module, blocks: Sequence[nn.Module], settings: Settings, device: torch.device) -> Spread:
    """The model wrapped by the library that the layout names; on ``device`` afterwards. The process group is there already.

    Args:
        model: with its adapters, on the processor, the same on every rank
        blocks: units of FSDP2
        settings: of a worksheet whose strategy is single, ddp, fsdp, fsdp_grad_op or hsdp
        device: of this rank
    """
    if settings.layout.is_fsdp:
        return _sharded(model, blocks, settings, device)
    model.to(device)
    if settings.layout.strategy == "ddp":
        return _replicated(model, settings, device)
    return Spread(model, lambda _: contextlib.nullcontext())


def _replicated(model: nn.Module, settings: Settings, device: torch.device) -> Spread:
    from torch.nn.parallel import DistributedDataParallel  # noqa: PLC0415

    keys: dict[str, Any] = {"device_ids": [device.index]} if device.type == "cuda" else {}
    if settings.layout.bucket_bytes:
        keys["bucket_cap_mb"] = settings.layout.bucket_bytes / 2**20
    wrapped = DistributedDataParallel(model, **keys)
    syncs_all = settings.layout.sync_every_micro_batch
    return Spread(wrapped, lambda last: contextlib.nullcontext() if last or syncs_all else wrapped.no_sync())


def _sharded(model: nn.Module, blocks: Sequence[nn.Module], settings: Settings, device: torch.device) -> Spread:
    """FSDP2: every block a unit, the rest the root's."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard  # noqa: PLC0415

    layout, precision = settings.layout, settings.precision
    keys: dict[str, Any] = {
        "mesh": _mesh(settings, device),
        "mp_policy": MixedPrecisionPolicy(param_dtype=DTYPES[precision.compute], reduce_dtype=DTYPES[precision.reduce]),
        "reshard_after_forward": False if layout.strategy == "fsdp_grad_op" else layout.reshard_after_forward,
    }
    for block in blocks:
        fully_shard(block, **keys)
    fully_shard(model, **keys)
    every: Any = model

    def syncs(last: bool) -> contextlib.AbstractContextManager[None]:
        every.set_requires_gradient_sync(layout.sync_every_micro_batch or last)
        return contextlib.nullcontext()

    return Spread(model, syncs)


def _mesh(settings: Settings, device: torch.device) -> DeviceMesh:
    ranks, shards = dist.get_world_size(), settings.layout.shards
    if settings.layout.strategy == "hsdp":
        return init_device_mesh(device.type, (ranks // shards, shards), mesh_dim_names=("replicate", "shard"))
    return init_device_mesh(device.type, (ranks,), mesh_dim_names=("shard",))
