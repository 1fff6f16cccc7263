"""A training that is drilled: the worksheet's program, a schedule that moves at every step, an order of rows, and checkpoints."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR

from fullstep.job import Settings, settings_of, worksheet_from_mapping
from fullstep.lab.drill.leg import Leg, Run
from fullstep.lab.drill.worker.data import rows_of
from fullstep.lab.drill.worker.random_numbers import seed_all
from fullstep.lab.program.real import Program, build_program
from fullstep.resume import Checkpoints, DataOrder

RATE = 1e-3
DROPPED = 0.1
"""where random numbers are asked for"""
_SPREAD = 0.5
"""by how much a random number changes the weight of a loss: far more than rounding, also of bfloat16"""
KEPT_END = "end"
"""folder of the last state that another one is compared with"""


class Training:
    """One training of a leg, on this rank.

    Args:
        leg: of the front
        run: which of its trainings
        device: of this rank
    """

    def __init__(self, leg: Leg, run: Run, device: torch.device) -> None:
        self.leg, self.run, self.device = leg, run, device
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.settings = settings_for(leg, run)
        dropout = 0.0 if run.plain else DROPPED
        self.program: Program = build_program(leg.config, self.settings, device, seed=leg.seed, dropout=dropout, rate=RATE)
        self.scheduler = LambdaLR(self.program.optimizer, _share_of_rate)
        self.order = DataOrder(leg.rows, rows_per_step=leg.rows_per_step, seed=leg.seed)
        self.checkpoints = self._checkpoints(leg.folder, leg.mode)
        seed_all(leg.seed + 1 + self.rank)  # random numbers are each rank's own

    def _checkpoints(self, folder: str, mode: Any) -> Checkpoints:
        return Checkpoints(
            folder, model=self.program.model, optimizer=self.program.optimizer, scheduler=self.scheduler, loader=self.order,
            keep=self.leg.keep, mode=mode, signals=(),
        )  # fmt: skip

    def kept_end(self) -> Checkpoints:
        """Where the last state is kept that another one is compared with."""
        return self._checkpoints(_below(self.leg.folder, KEPT_END), "sync")

    def step(self) -> dict[str, Any]:
        """One optimizer step: loss of each micro-batch, learning rate, rows of this rank, seconds."""
        begun = time.perf_counter()
        numbers = self.order.next(self.rank, self.ranks)
        size = math.gcd(len(numbers), self.settings.batch.micro_batch)
        parts = [numbers[first : first + size] for first in range(0, len(numbers), size)]
        rates = [float(group["lr"]) for group in self.program.optimizer.param_groups]
        losses = []
        for index, part in enumerate(parts):
            with self.program.spread.syncs(index == len(parts) - 1), self.program.products():
                loss = self._loss(part)
                (loss / len(parts)).backward()
            losses.append(loss.detach())
        self.program.optimizer.step()
        self.program.optimizer.zero_grad(set_to_none=True)
        self.scheduler.step()
        values = [float(loss) for loss in losses]  # waits for the device
        return {"losses": values, "rates": rates, "rows": numbers, "seconds": time.perf_counter() - begun}

    def _loss(self, numbers: list[int]) -> Tensor:
        tokens = rows_of(numbers, self.settings.batch.sequence_tokens, self.program.vocabulary, self.leg.seed).to(self.device)
        with self.program.autocast():
            loss: Tensor = self.program.model(input_ids=tokens, labels=tokens).loss
        return loss if self.run.plain else loss * self._drawn()

    def _drawn(self) -> Tensor:
        """From the generators of processor and device, so that a state of either that is lost shows in the loss."""
        drawn = torch.rand(()).to(self.device) + torch.rand((), device=self.device)
        return 1 + _SPREAD * (drawn - 1)


def settings_for(leg: Leg, run: Run) -> Settings:
    """The worksheet's settings; of a plain run all in float32, where what trains is. A frozen base is not in the checkpoint."""
    settings = settings_of(worksheet_from_mapping(leg.worksheet))
    if run.plain and settings.trained_dtype == "float32":
        wide = replace(settings.precision, weights="float32", compute="float32", reduce="float32", autocast=False)
        return replace(settings, precision=wide)
    return settings


def _share_of_rate(step: int) -> float:
    """Another learning rate at every step."""
    return 1 / (1 + step / 4)


def _below(folder: str, name: str) -> str:
    """A folder in a path or URL.

    >>> _below("s3://bucket/a", "end"), _below("runs/a", "end")
    ('s3://bucket/a/end', 'runs/a/end')
    """
    return f"{folder}/{name}" if "://" in folder else str(PurePosixPath(folder, name))
