"""Digests of a whole training state, the same whatever the number of ranks that hold it."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor


def digests_of(state: Mapping[str, Any], group: dist.ProcessGroup | None = None) -> dict[str, str]:
    """From each tensor's and value's name to the SHA-256 of its dtype, shape and bytes. All ranks must call it.

    A tensor that is divided among the ranks is put together on each of them for a moment, and digested by one. What they hold alike is
    digested by all; where it is not alike, each rank's has an entry of its own, ``name@rank0`` and so on.

    Args:
        state: nested; sharded tensors are DTensors; a name that one rank alone has is digested there
        group: of gloo, for what is gathered; None: one process
    """
    ranks, rank = (1, 0) if group is None else (dist.get_world_size(group), dist.get_rank(group))
    found: dict[str, str] = {}
    divided = 0
    for name, value in _flat(state):
        if not isinstance(value, DTensor):
            found[name] = digest_of(value)
            continue
        whole = value.full_tensor()
        if _is_replicated(value) or divided % ranks == rank:
            found[name] = digest_of(whole)
        divided += 1
    if group is None:
        return dict(sorted(found.items()))
    everywhere: list[dict[str, str]] = [{} for _ in range(ranks)]
    dist.all_gather_object(everywhere, found, group=group)
    return dict(sorted(_merged(everywhere)))


def _is_replicated(tensor: DTensor) -> bool:
    """Over some of the ranks: their copies may have come apart."""
    return any(placement.is_replicate() for placement in tensor.placements)


def _merged(everywhere: Sequence[Mapping[str, str]]) -> Iterator[tuple[str, str]]:
    """Digests by name, those in which ranks differ under each rank's own.

    >>> sorted(_merged([{"a": "1", "b": "2"}, {"a": "1", "b": "3"}]))
    [('a', '1'), ('b@rank0', '2'), ('b@rank1', '3')]
    """
    for name in {name for each in everywhere for name in each}:
        there = {rank: each[name] for rank, each in enumerate(everywhere) if name in each}
        if len(set(there.values())) == 1:
            yield name, next(iter(there.values()))
        else:
            yield from ((f"{name}@rank{rank}", digest) for rank, digest in there.items())


def digest_of(value: Any) -> str:
    """Of one tensor, or of a value that can be pickled.

    >>> digest_of(torch.zeros(2)) == digest_of(torch.zeros(2)), digest_of(torch.zeros(2)) == digest_of(-torch.zeros(2))
    (True, False)
    """
    if not isinstance(value, Tensor):
        return hashlib.sha256(repr(value).encode() if _is_plain(value) else pickle.dumps(value)).hexdigest()
    there = value.detach().cpu().contiguous()
    digest = hashlib.sha256(f"{there.dtype} {tuple(there.shape)}".encode())
    digest.update(there.view(-1).view(torch.uint8).numpy().data if there.numel() else b"")
    return digest.hexdigest()


def _flat(state: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Leaves with the path to them, in the same order on every rank that has the same names."""
    if isinstance(state, Mapping) and state:
        for key in sorted(state, key=str):
            yield from _flat(state[key], f"{name}.{key}" if name else str(key))
    elif isinstance(state, (list, tuple)) and any(isinstance(each, (Mapping, list, tuple, Tensor)) for each in state):
        for index, each in enumerate(state):
            yield from _flat(each, f"{name}.{index}")
    else:
        yield name, state


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (int, float, str, bytes, bool, list, tuple, dict))


def state_digests(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None, group: dist.ProcessGroup | None = None, **parts: Any
) -> dict[str, str]:
    """Digests of what a checkpoint of these would hold, random numbers of each rank among them. All ranks must call it.

    Args:
        model: as it is trained
        optimizer: its own
        group: of gloo; None: the default group where there is one, which must be able to gather objects
        parts: scheduler, loader and others, by their names
    """
    from fullstep.resume.state import TrainingState  # noqa: PLC0415 - which needs this module

    if group is None and dist.is_available() and dist.is_initialized():
        group = dist.group.WORLD
    state = TrainingState(model, optimizer, {name: part for name, part in parts.items() if part is not None}, group)
    return digests_of(state.to_compare(), group)
