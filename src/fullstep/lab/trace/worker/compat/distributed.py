"""Sharding on fake tensors: meshes are real, the propagation of shardings is not part of the step, a shard is cut without all the others.

DeviceMesh reads values of its tensors, which fake ones do not have. DTensor tries operations on tensors of global shape to learn
the shape of results: on a GPU those allocate nothing. FSDP1 asks by its address whether a tensor is allocated, which no fake one has.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fullstep.lab.trace.worker.compat.unit import Unit

paused = 0
"""above 0 while shardings are propagated: nothing is recorded then"""

_MESH_METHODS = ("__init__", "__getitem__", "_concatenate", "_flatten", "_unflatten", "get_coordinate", "_get_slice_mesh_layout")


def outside_modes(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, run on real tensors."""
    from torch.utils._python_dispatch import _disable_current_modes  # noqa: PLC0415

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        with _disable_current_modes():
            return function(*args, **kwargs)

    return run


def _own_chunk(tensor: Tensor, chunks: int, dim: int = 0) -> list[Tensor]:
    """Like ``_chunk_with_empty``, but only as many views are made as there are different ones: equal shapes share theirs.

    FSDP takes the chunk of its own rank and the shapes of none of the others.
    """
    size = tensor.size(dim)
    step = -(-size // chunks) if size else 0
    full, last = (divmod(size, step) if step else (0, 0))
    first = tensor.narrow(dim, 0, min(step, size))
    found: list[Tensor] = [first] * full
    if last:
        found.append(tensor.narrow(dim, full * step, last))
    if len(found) < chunks:
        empty = tensor.narrow(dim, 0, 0)
        found += [empty] * (chunks - len(found))
    return found


def _is_allocated(tensor: Tensor) -> bool:
    """FSDP1 frees a flat parameter by making its storage as small as nothing."""
    return tensor.untyped_storage().size() > 0


def _install() -> None:
    from torch.distributed.device_mesh import DeviceMesh  # noqa: PLC0415
    from torch.distributed.fsdp import _flat_param  # noqa: PLC0415
    from torch.distributed.fsdp._fully_shard import _fsdp_init, _fsdp_param, _fully_shard  # noqa: PLC0415
    from torch.distributed.tensor._sharding_prop import ShardingPropagator  # noqa: PLC0415

    for name in _MESH_METHODS:
        method = DeviceMesh.__dict__.get(name)
        if isinstance(method, (staticmethod, classmethod)):
            setattr(DeviceMesh, name, type(method)(outside_modes(method.__func__)))
        elif method is not None:
            setattr(DeviceMesh, name, outside_modes(method))
    mesh_info = outside_modes(_fsdp_init._get_post_forward_mesh_info)
    _fsdp_init._get_post_forward_mesh_info = _fully_shard._get_post_forward_mesh_info = mesh_info
    propagate = ShardingPropagator._propagate_tensor_meta_non_cached

    def quietly(*args: Any, **kwargs: Any) -> Any:
        global paused  # noqa: PLW0603
        paused += 1
        try:
            return propagate(*args, **kwargs)
        finally:
            paused -= 1

    ShardingPropagator._propagate_tensor_meta_non_cached = quietly  # type: ignore[method-assign]
    _fsdp_param._chunk_with_empty = _own_chunk
    _flat_param._data_ptr_allocated = _is_allocated


def _self_test() -> None:
    from torch.distributed.fsdp import _flat_param  # noqa: PLC0415

    flat = torch.empty(4)
    assert _flat_param._data_ptr_allocated(flat)
    flat.untyped_storage().resize_(0)
    assert not _flat_param._data_ptr_allocated(flat)
    whole = torch.arange(10)
    for chunks in (1, 3, 4, 7, 16):
        mine = [tuple(chunk.shape) for chunk in _own_chunk(whole, chunks)]
        theirs = [tuple(chunk.shape) for chunk in torch.chunk(whole, chunks)]
        theirs += [(0,)] * (chunks - len(theirs))
        assert mine == theirs, (chunks, mine, theirs)


DISTRIBUTED = Unit(
    name="distributed",
    why="meshes read values; sharding propagation allocates tensors of global shape; cutting N shards of each parameter takes N views; "
    "flat parameters are asked for their address",
    install=_install,
    self_test=_self_test,
)
