"""What a witness says of the memory of one step: the same type for an estimate, a trace and a measurement."""

from __future__ import annotations

from typing import NamedTuple

from fullstep.ledger.answer import Caution, OtherPeaks
from fullstep.ledger.instants import At, Instant
from fullstep.quantities import Bounds


class MemoryEstimate(NamedTuple):
    """Bytes per GPU (the worst rank, the steady step) and per node for the host."""

    parameters: int
    trainable_parameters: int
    instants: tuple[Instant, ...]
    peak_at: At
    allocated: Bounds
    reserved: Bounds
    device: Bounds
    needed: Bounds
    other_peaks: OtherPeaks
    host_bytes: float
    host_at: str
    cautions: tuple[Caution, ...] = ()
