"""Records whose figures stand in the test that keeps them."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

from tiny_jobs import LLAMA

from fullstep.formats.probe_record import save
from fullstep.ledger.probe import Probe, ProbedRank, StepSample, Stretch
from fullstep.quantities import MIB

SHEET: dict[str, Any] = {"schema": 1, "model": {"config": LLAMA}, "machine": {"gpu": "H100-SXM"}, "batch": {"sequence_tokens": 512}}
H100 = "NVIDIA H100 80GB HBM3"


def sheet(micro_batch: int = 1, **measured: float) -> dict[str, Any]:
    found = copy.deepcopy(SHEET)
    found["batch"]["micro_batch"] = micro_batch
    return {**found, "measured": measured} if measured else found


def keep(
    where: Path, allocated: float, *, of: dict[str, Any], device: str = H100, day: int = 1, ranks: int = 1, seconds: float = 2.0
) -> str:
    """A record whose steady step allocated so much, reserved 20 MiB and used 30 MiB more."""
    size = round(allocated)
    gpu = (size + 20 * MIB, size + 30 * MIB) if device != "cpu" else (None, None)
    memory = (Stretch(1, 1, "forward", 10, 10, *gpu), Stretch(2, 1, "backward", size, 10, *gpu))
    rank = ProbedRank(rank=0, device=device, memory=memory, steps=(StepSample(3, seconds, 0.0, 512),), host_peak_bytes=None)
    probe = Probe(
        outcome="completed", reason="", made=f"2026-01-{day:02}T00:00:00Z", command=(), seed=0, model="tiny", parameters=None,
        trainable_parameters=None, worksheet=of, environment={}, ranks=tuple(replace(rank, rank=each) for each in range(ranks)),
        world_size=ranks, notes=("rows are random",),
    )  # fmt: skip
    return save(probe, str(where))
