"""How a rank finds the others: in the workers alone, which have torch."""

from __future__ import annotations

import os
from hashlib import sha256
from typing import Any

import torch
import torch.distributed as dist

from fullstep.errors import Fault, InputError


def join_group(device: str, gpu_backend: str = "cpu:gloo,cuda:nccl") -> torch.device:
    """Joins the process group that torchrun has told of. Returns the device of this rank.

    Args:
        device: cpu or cuda
        gpu_backend: as torch.distributed names it, for GPUs; processors have gloo

    Raises:
        InputError: nodes have different numbers of ranks
    """
    here, nodes, ranks = (int(os.environ[name]) for name in ("LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "WORLD_SIZE"))
    if here * nodes != ranks:
        found = f"{here} ranks on this one, {ranks} on all {nodes}"
        raise InputError(Fault("nodes", found, "the same number on each", "--cpu N, or GPUs that are visible, have to be alike."))
    if device == "cpu":
        dist.init_process_group("gloo")
        return torch.device("cpu")
    found = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(found)
    dist.init_process_group(gpu_backend, device_id=found)
    return found


def gathered(record: dict[str, Any]) -> list[dict[str, Any]]:
    """What this rank is to leave on its node: its own record; the first rank of several nodes those of other nodes too. All call it."""
    ranks, on_node = dist.get_world_size(), int(os.environ["LOCAL_WORLD_SIZE"])
    if ranks == on_node:
        return [record]
    all_of_them: list[Any] | None = [None] * ranks if dist.get_rank() == 0 else None
    dist.gather_object(record, all_of_them)
    return [record] if all_of_them is None else [record, *all_of_them[on_node:]]


def agreed(text: str) -> str:
    """What the first rank has: on several nodes each front has its own. All call it."""
    texts = [text]
    dist.broadcast_object_list(texts, src=0)
    return texts[0]


def require_the_same(what: str, text: str) -> None:
    """That all ranks were told the same: on several nodes each has it from its own command. All call it.

    Raises:
        InputError: they were not
    """
    if int(os.environ.get("GROUP_WORLD_SIZE", "1")) == 1:
        return
    digests: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(digests, sha256(text.encode()).hexdigest())
    if len(set(digests)) > 1:
        found = f"{what} differ between the nodes"
        raise InputError(Fault("nodes", found, "the same command, files and versions on each"))
