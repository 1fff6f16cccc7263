"""Load, evaluation, save and the host."""

from __future__ import annotations

from fullstep.job import Job
from fullstep.ledger import Instant, OtherPeaks
from fullstep.physics.memory.sharding import Shares
from fullstep.physics.memory.state import WeightBytes


def other_peaks(job: Job, held: Shares, weights: WeightBytes, instants: tuple[Instant, ...]) -> OtherPeaks:
    """To be written."""
    return OtherPeaks()


def host_memory(job: Job, held: Shares, weights: WeightBytes) -> tuple[float, str]:
    """To be written."""
    return 0.0, "load"
