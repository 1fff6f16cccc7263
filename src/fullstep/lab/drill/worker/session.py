"""One leg on one rank: the process group, its trainings, and what is measured beside them."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from fullstep.lab.drill.leg import Leg
from fullstep.lab.drill.worker.raw_speed import raw_speed
from fullstep.lab.drill.worker.run import go_through
from fullstep.lab.drill.worker.training import Training
from fullstep.lab.ranks.joining import join_group
from fullstep.resume.places import Place


def go_through_leg(leg: Leg, say: Callable[[str], None], clock: dict[str, float]) -> dict[str, Any]:
    """All trainings of the leg, one after another.

    Args:
        leg: of the front
        say: is told what begins
        clock: moments of this process so far; the next ones are entered [seconds since 1970]

    Returns:
        the record of this rank
    """
    say("joining the process group")
    device = _join(leg)
    clock["joined"] = time.time()
    record: dict[str, Any] = {"rank": dist.get_rank(), "ranks": dist.get_world_size(), "clock": clock, "runs": []}
    training: Training | None = None
    for run in leg.runs:
        training = None  # two models at once would take memory that nothing needs; wrapped ones refer to themselves
        gc.collect()
        seen, training = go_through(leg, run, device, say, clock)
        record["runs"].append(seen)
    if leg.exports and training is not None:
        from fullstep.lab.drill.worker.exported import export_and_read_back  # noqa: PLC0415 - few legs do

        say("exporting the model")
        record["export"] = export_and_read_back(training, export_folder(leg))
    if leg.writes_raw:
        say("measuring the disk")
        total = record["runs"][-1]["saves"][-1]["bytes"]
        record["raw"] = raw_speed(leg.folder, max(total // dist.get_world_size(), 1))
    record["device"] = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    return record


def export_folder(leg: Leg) -> Path:
    """On the disk of the checkpoints where that is one of this machine, so that no other one fills up."""
    return Path(leg.folder if Place.at(leg.folder).is_local else leg.records)


def _join(leg: Leg) -> torch.device:
    if leg.device == "cuda":
        torch.use_deterministic_algorithms(True, warn_only=True)
    return join_group(leg.device)
