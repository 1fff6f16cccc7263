"""What a checkpoint has to hold, whatever it is put into. Bytes over all ranks, replicas counted once."""

from __future__ import annotations

from typing import NamedTuple

from fullstep.job import Job
from fullstep.physics.memory.optimizer import state_bytes
from fullstep.physics.memory.weights import weight_bytes

_DIVIDED_SMALL_SCALARS: dict[str, tuple[int, int, int]] = {
    "adamw": (2, 1, 0), "adam": (2, 1, 0), "sgd": (0, 0, 0), "sgd_momentum": (1, 0, 0), "adafactor": (2, 0, 2), "lion": (1, 0, 1),
    "muon": (1, 0, 0), "adamw_8bit": (4, 2, 1), "lion_8bit": (2, 1, 1), "paged_adamw": (2, 0, 1), "paged_adamw_8bit": (4, 2, 1),
    "adamw_4bit": (4, 3, 0), "galore": (3, 0, 1), "apollo": (2, 0, 1),
}  # fmt: skip


class StateTensors(NamedTuple):
    """What an optimizer keeps of each parameter, beside bytes: how many tensors and numbers."""

    divided: int
    """tensors that are divided as the parameter is: moments, codes, block scales, rows and columns"""
    small: int
    """tensors that are not: a step, a table of quantization"""
    scalars: int
    """plain numbers and objects"""


def state_tensors(optimizer: str) -> StateTensors:
    """Per parameter: AdamW has two moments and its step; 8-bit ones codes, scales, a table each, and a plain step.

    Source:
        torch.optim, AdamW; bitsandbytes, optimizer.py init_state; torchao.optim; transformers.optimization.Adafactor; GaLore's projector

    >>> state_tensors("adamw")
    StateTensors(divided=2, small=1, scalars=0)
    """
    return StateTensors(*_DIVIDED_SMALL_SCALARS[optimizer])


class Contents(NamedTuple):
    """Bytes of one checkpoint by what they are. Gradients are not in it: at the end of a step there are none."""

    weights: float
    """that train, in their own dtype; modules that train beside adapters among them"""
    frozen: float
    """0 where they stay where they came from"""
    adapters: float
    masters: float
    """float32 copies"""
    states: float

    @property
    def trained(self) -> float:
        """Weights and adapters, without copies and states."""
        return self.weights + self.adapters

    @property
    def total(self) -> float:
        """[bytes]"""
        return sum(self)


def contents_of(job: Job) -> Contents:
    """Weights that train, their float32 copies, and the optimizer's states [bytes]::

        float32 weights, AdamW                      4     + 8  = 12 bytes per parameter
        16-bit weights, float32 copies, AdamW       2 + 4 + 8  = 14
        16-bit weights, AdamW in their dtype        2     + 4  =  6

    The frozen base of an adapter is not saved again, but by DeepSpeed's own engine, which writes all parameters unless it is told
    ``exclude_frozen_parameters`` (transformers' Trainer tells it so for peft).

    Example: Llama-3.1-8B in float32 with AdamW: ``8,030,261,248 * 12`` = 96.4 GB = 89.7 GiB.

    Source:
        torch.distributed.checkpoint.state_dict, get_state_dict; transformers 5.23, Trainer._save_optimizer_and_scheduler; a checkpoint of
        88.7 GiB for an adapter of 463 MiB: github.com/dreamzero0/dreamzero/issues/90

    Valid:
        a training loop of your own saves what it is told to: torch's get_state_dict takes the frozen base along unless
        ``ignore_frozen_params`` is set
    """
    weights = weight_bytes(job)
    if job.method.kind == "full":
        return Contents(weights.blocks + weights.outside, 0.0, 0.0, weights.masters, state_bytes(job))
    frozen = weights.blocks + weights.outside if saves_frozen(job) else 0.0
    return Contents(weights.modules, frozen, weights.adapters, weights.masters, state_bytes(job))


def saves_frozen(job: Job) -> bool:
    """Whether the frozen base of an adapter is written with every checkpoint."""
    return job.method.kind != "full" and job.step.framework == "deepspeed" and job.layout.implementation == "deepspeed"
