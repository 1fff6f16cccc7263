"""From allocated to reserved and to what the device shows."""

from __future__ import annotations

from typing import NamedTuple

from fullstep.hardware import device_overheads
from fullstep.job import Job
from fullstep.ledger import Instant
from fullstep.physics.memory.walk import Scene
from fullstep.quantities import Bounds


class Counters(NamedTuple):
    """Bytes on one GPU."""

    allocated: Bounds
    reserved: Bounds
    device: Bounds
    needed: Bounds


def counters(job: Job, scene: Scene, peak: Instant) -> Counters:
    """The three counters and what the verdict compares."""
    a = peak.allocated_bytes
    o = device_overheads(job.machine.card)
    ctx = o.context_bytes
    r = a * 1.1
    return Counters(Bounds(a * 0.97, a, a * 1.05), Bounds(a, r, a * 1.3), Bounds(a + ctx.low, r + ctx.likely, r * 1.2), Bounds(a, a, a * 1.05))
