"""The model spread as the worksheet's layout says, over a fake process group of its size; this process is rank 0."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from fullstep.job.job import Settings
from fullstep.lab.program.dtypes import DTYPES
from fullstep.lab.program.versions import recomputes_units
from fullstep.lab.trace.worker.flat_shards import Syncs, recompute_units, shard_flat
from fullstep.lab.trace.worker.offload import offload_shards
from fullstep.lab.trace.worker.recorder import Recorder
from fullstep.lab.trace.worker.tensor_parallel import cut_tensors


@dataclass(frozen=True, slots=True)
class Mesh:
    """Ranks as a grid: the one over which state is divided or copied, and the one over which tensors are cut."""

    data: DeviceMesh | None
    tensor: DeviceMesh | None


@dataclass(frozen=True, slots=True)
class Spread:
    """A model in its layout."""

    model: nn.Module
    syncs: Syncs


def make_mesh(settings: Settings) -> Mesh:
    """A fake process group of all GPUs, and its meshes. Call it before the fake mode: meshes hold real tensors."""
    from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: PLC0415

    layout, world = settings.layout, settings.machine.gpus * settings.machine.nodes
    if layout.strategy == "single" and layout.tensor == 1:
        return Mesh(None, None)
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world)
    ranks = world // layout.tensor
    names, sizes = ["data"], [ranks]
    if layout.strategy == "hsdp":
        names, sizes = ["replicate", "shard"], [ranks // layout.shards, layout.shards]
    if layout.tensor > 1:
        names, sizes = [*names, "tensor"], [*sizes, layout.tensor]
    mesh = init_device_mesh("cpu", tuple(sizes), mesh_dim_names=tuple(names))
    if layout.tensor == 1:
        return Mesh(mesh, None)
    data = mesh["replicate", "shard"] if layout.strategy == "hsdp" else mesh["data"]
    return Mesh(data if ranks > 1 else None, mesh["tensor"])


@contextlib.contextmanager
def changes_undone(settings: Settings) -> Iterator[None]:
    """What :func:`spread` changes in torch is put back: another recording may follow in this process."""
    places = _changed_places(settings)
    before = [vars(holder)[name] for holder, name in places]
    try:
        yield
    finally:
        for (holder, name), value in zip(places, before, strict=True):
            setattr(holder, name, value)


def _changed_places(settings: Settings) -> list[tuple[Any, str]]:
    if settings.layout.strategy == "ddp":
        from torch.nn.parallel import distributed  # noqa: PLC0415

        checks = [(distributed, "_verify_param_shape_across_processes"), (distributed, "_sync_module_states")]
        return [*checks, *((dist, name) for name in ("Logger", "Reducer", "_register_comm_hook"))]
    if not settings.layout.is_fsdp:
        return []
    from torch.distributed.fsdp._fully_shard import _fsdp_param, _fsdp_param_group  # noqa: PLC0415

    traffic = [(_fsdp_param_group, name) for name in ("foreach_all_gather", "foreach_reduce")]
    return [*traffic, (_fsdp_param.FSDPParam, "all_gather_inputs")]


def spread(model: nn.Module, blocks: Sequence[nn.Module], mesh: Mesh, settings: Settings, recorder: Recorder) -> Spread:
    """The model wrapped by the library that the layout names.

    Args:
        model: with its adapters
        blocks: units of FSDP, as the Trainer wraps them
        mesh: of :func:`make_mesh`
        settings: the worksheet
        recorder: is told what DDP's buckets and FSDP's gathered parameters are
    """
    if mesh.tensor is not None:
        cut_tensors(model, mesh.tensor)
    if settings.layout.implementation == "fsdp1" and mesh.data is not None:
        wrapped, syncs = shard_flat(model, blocks, mesh.data, settings)
        if recomputes_units(settings):
            recompute_units(wrapped, blocks)
        return Spread(wrapped, syncs)
    if settings.layout.is_fsdp and mesh.data is not None:
        return _fully_sharded(model, blocks, mesh.data, settings, recorder)
    if settings.layout.strategy == "ddp":
        return _replicated(model, settings, recorder)
    return Spread(model, lambda _: contextlib.nullcontext())


def _fully_sharded(model: nn.Module, blocks: Sequence[nn.Module], mesh: DeviceMesh, settings: Settings, recorder: Recorder) -> Spread:
    """FSDP2: every block a unit, the rest the root's."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard  # noqa: PLC0415

    layout, precision = settings.layout, settings.precision
    keys: dict[str, Any] = {
        "mesh": mesh,
        "mp_policy": MixedPrecisionPolicy(param_dtype=DTYPES[precision.compute], reduce_dtype=DTYPES[precision.reduce]),
        "reshard_after_forward": False if layout.strategy == "fsdp_grad_op" else layout.reshard_after_forward,
    }
    if layout.offload_parameters:
        keys["offload_policy"] = offload_shards(recorder)
    _label_traffic(recorder)
    for block in blocks:
        fully_shard(block, **keys)
    fully_shard(model, **keys)
    if layout.offload_parameters:
        recorder.keep_on_host(model.parameters())
    every: Any = model

    def syncs(last: bool) -> contextlib.AbstractContextManager[None]:
        every.set_requires_gradient_sync(layout.sync_every_micro_batch or last)
        return contextlib.nullcontext()

    return Spread(model, syncs)


def _label_traffic(recorder: Recorder) -> None:
    """What a unit gathers are gathered parameters; its whole gradients are gradients, until they are reduced."""
    from torch.distributed.fsdp._fully_shard import _fsdp_param_group  # noqa: PLC0415

    gather, reduce = _fsdp_param_group.foreach_all_gather, _fsdp_param_group.foreach_reduce

    def gathered(*args: Any) -> Any:
        result = gather(*args)
        if result is not None:
            recorder.hold([result.all_gather_output], "gathered_parameters")
        return result

    def reduced(params: Any, gradients: list[Tensor], *rest: Any) -> Any:
        recorder.hold(gradients, "gradients")
        return reduce(params, gradients, *rest)

    _fsdp_param_group.foreach_all_gather, _fsdp_param_group.foreach_reduce = gathered, reduced


class _Silent:
    """A logger that reads nothing."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __getattr__(self, _: str) -> Callable[..., None]:
        return lambda *_, **__: None


class _Reducer:
    """torch's own reducer, whose buckets are not built anew after the first step: it would read the order of arrival."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.__dict__["real"] = _real_reducer(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name in ("_rebuild_buckets", "_set_logger", "set_logger"):
            return lambda *_, **__: False
        return getattr(self.__dict__["real"], name)


_real_reducer = dist.Reducer


def _replicated(model: nn.Module, settings: Settings, recorder: Recorder) -> Spread:
    """DistributedDataParallel with torch's own reducer. What it checks by reading values is left out: ranks are alike here."""
    from torch.nn.parallel import DistributedDataParallel, distributed  # noqa: PLC0415

    parts: Any = distributed
    parts._verify_param_shape_across_processes = lambda *_, **__: None
    parts._sync_module_states = lambda *_, **__: None
    parts.dist.Logger = _Silent
    parts.dist.Reducer = _Reducer
    register = parts.dist._register_comm_hook
    parts.dist._register_comm_hook = lambda reducer, *rest: register(getattr(reducer, "real", reducer), *rest)
    keys: dict[str, Any] = {}
    if settings.layout.bucket_bytes:
        keys["bucket_cap_mb"] = settings.layout.bucket_bytes / 2**20
    before = len(recorder.stream.tensors)
    wrapped = DistributedDataParallel(model, **keys)
    for record in recorder.stream.tensors[before:]:
        record.holding = record.holding or "buffers"
    wrapped.register_comm_hook(None, lambda _, bucket: _reduced(bucket))
    syncs_all = settings.layout.sync_every_micro_batch

    def syncs(last: bool) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext() if last or syncs_all else wrapped.no_sync()

    return Spread(wrapped, syncs)


def _reduced(bucket: Any) -> torch.futures.Future[Tensor]:
    """What a reduction hook gives back: the bucket's own buffer, reduced in place."""
    done: torch.futures.Future[Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done
