"""How a rank finds the others: in the workers alone, which have torch."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist


def join_group(device: str, gpu_backend: str = "cpu:gloo,cuda:nccl") -> torch.device:
    """Joins the process group that torchrun has told of. Returns the device of this rank.

    Args:
        device: cpu or cuda
        gpu_backend: as torch.distributed names it, for GPUs; processors have gloo
    """
    if device == "cpu":
        dist.init_process_group("gloo")
        return torch.device("cpu")
    found = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(found)
    dist.init_process_group(gpu_backend, device_id=found)
    return found
