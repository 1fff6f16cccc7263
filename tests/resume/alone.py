"""A small training in this process, without torch.distributed. (Needs torch: real_classes.)"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import torch
from torch import nn
from training import LENGTH, ROWS, VOCABULARY, built

from fullstep.resume import Checkpoints, DataOrder, Saved, checkpoints_in
from fullstep.resume.manifest import flaws_of_files
from fullstep.resume.places import Place


class Alone:
    """A training of one process.

    Args:
        folder: of its checkpoints; a path or a URL
        settings: of Checkpoints; model, optimizer, scheduler or loader replace its own
    """

    def __init__(self, folder: str | Path, **settings: Any) -> None:
        model, optimizer, scheduler = built(settings.pop("width", 8), "none")
        random.seed(0)
        torch.manual_seed(0)
        self.model: nn.Module = settings.pop("model", model)
        self.optimizer: Any = settings.pop("optimizer", optimizer)
        self.scheduler: Any = settings.pop("scheduler", scheduler)
        self.order: Any = settings.pop("loader", DataOrder(ROWS, 4, seed=1))
        self.losses: list[float] = []
        self.step = 0
        self.checkpoints = Checkpoints(
            folder, model=self.model, optimizer=self.optimizer, scheduler=self.scheduler, loader=self.order, signals=(), **settings
        )

    def train(self, steps: int = 1) -> None:
        """So many more."""
        data = torch.randint(0, VOCABULARY, (ROWS, LENGTH), generator=torch.Generator().manual_seed(0))
        for _ in range(steps):
            rows = data[self.order.next()]
            loss = nn.functional.cross_entropy(self.model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
            loss.backward()
            self.optimizer.step()
            self.scheduler.step()
            self.optimizer.zero_grad()
            self.step += 1
            self.losses.append(loss.item())

    def save(self) -> Saved:
        """After this step."""
        return self.checkpoints.save(self.step)

    def resume(self) -> int:
        """Its step becomes that of the checkpoint."""
        self.step = self.checkpoints.resume()
        return self.step

    def digests(self) -> dict[str, str]:
        """Of the whole state."""
        return self.checkpoints.digests()

    def saved(self, steps: int = 1) -> dict[str, str]:
        """Trains, saves, waits, and returns what was saved."""
        self.train(steps)
        now = self.digests()
        self.save()
        self.checkpoints.finish()
        return now


def whole(folder: str | Path) -> list[int]:
    """The steps of the checkpoints that are whole, the newest first; every manifest must be true."""
    place = Place.at(folder)
    found = [each for each in checkpoints_in(place) if each.manifest is not None]
    faults = [fault for each in found if each.manifest for fault in flaws_of_files(place, each.folder, each.manifest)]
    assert faults == []
    return [each.step for each in found]


def folders(folder: str | Path) -> list[str]:
    """All that is in it."""
    return sorted(each.name for each in Path(folder).iterdir())
