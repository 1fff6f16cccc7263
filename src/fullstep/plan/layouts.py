"""The layouts of one machine: what each divides, in the order in which they cost traffic."""

from __future__ import annotations

from typing import NamedTuple

from fullstep.job import Layout, Settings
from fullstep.quantities import format_gib


class LayoutKind(NamedTuple):
    """One strategy of the worksheet."""

    traffic: int
    """0: least; the order in which one would take them while memory allows"""
    sharded: bool
    """any part of the state is divided over the GPUs"""
    words: str


LAYOUTS: dict[str, LayoutKind] = {
    "single": LayoutKind(0, False, "one GPU"),
    "ddp": LayoutKind(1, False, "a whole replica on each GPU"),
    "zero1": LayoutKind(2, True, "optimizer states sharded over the GPUs"),
    "zero2": LayoutKind(3, True, "gradients and optimizer states sharded over the GPUs"),
    "fsdp_grad_op": LayoutKind(4, True, "gradients and optimizer states sharded over the GPUs"),
    "hsdp": LayoutKind(5, True, "state sharded over the GPUs of a node, replicated over the nodes"),
    "fsdp": LayoutKind(6, True, "state sharded over the GPUs"),
    "zero3": LayoutKind(7, True, "state sharded over the GPUs"),
    "layer_split": LayoutKind(8, True, "layers divided over the GPUs, one GPU busy at a time"),
}

ONE_GPU = "one GPU"
DEGREES = ("tensor", "pipeline", "context", "expert")
_NAMES = {"ddp": "DDP", "zero1": "ZeRO-1", "zero2": "ZeRO-2", "zero3": "ZeRO-3", "layer_split": "device_map"}


def layout_name(layout: Layout) -> str:
    """The field's short name of a layout, with the degrees that cut the model or its rows.

    For ``fsdp`` the implementation decides: FSDP2 or FSDP1.
    """
    degrees = [f"{name} {degree}" for name in DEGREES if (degree := getattr(layout, name)) > 1]
    replica = layout.strategy == "single" or (layout.strategy == "ddp" and layout.data_parallel == 1)
    if replica and degrees:
        return " x ".join(degrees)
    return " x ".join([_strategy_name(layout), *degrees])


def _strategy_name(layout: Layout) -> str:
    if layout.strategy == "single":
        return ONE_GPU
    if layout.strategy in _NAMES:
        return _NAMES[layout.strategy]
    generation = "FSDP1" if layout.implementation == "fsdp1" else "FSDP2"
    return {"fsdp": generation, "fsdp_grad_op": f"{generation} SHARD_GRAD_OP", "hsdp": f"HSDP ({generation})"}[layout.strategy]


def machine_words(job: Settings) -> str:
    """The GPUs of a job in words: ``2 nodes of 8 x H100-SXM``."""
    machine = job.machine
    if machine.card is None:
        size = "of a card not named" if machine.gpu_memory_bytes is None else f"of {format_gib(machine.gpu_memory_bytes)}"
        here = f"{machine.gpus} GPUs {size}" if machine.gpus > 1 else f"one GPU {size}"
    elif machine.gpus == 1 and machine.nodes == 1:
        return f"one {machine.card.key}"
    else:
        here = f"{machine.gpus} x {machine.card.key}"
    return here if machine.nodes == 1 else f"{machine.nodes} nodes of {here}"


def layout_words(job: Settings) -> str:
    """A job's layout in words: ``state sharded over the GPUs (FSDP2)``."""
    if job.layout.strategy == "single":
        return layout_name(job.layout)
    if job.layout.data_parallel == 1 and LAYOUTS[job.layout.strategy].sharded and job.layout.strategy != "layer_split":
        return layout_name(job.layout)  # nothing to share: it is there to offload
    return f"{LAYOUTS[job.layout.strategy].words} ({layout_name(job.layout)})"


def place_words(job: Settings) -> str:
    """The GPUs and how the job is spread over them."""
    spread = layout_words(job)
    return machine_words(job) if spread == ONE_GPU else f"{machine_words(job)}, {spread}"


def strategy_words(strategy: str, gpus: int) -> str:
    """A strategy in words; over one GPU there is nothing to share.

    >>> strategy_words("zero3", gpus=8), strategy_words("zero3", gpus=1)
    ('state sharded over the GPUs', 'ZeRO-3')
    """
    return LAYOUTS[strategy].words if gpus > 1 else _NAMES.get(strategy, LAYOUTS[strategy].words)
