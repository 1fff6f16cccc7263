"""What a trace saw, put in the place of what was estimated.

A trace is one step of the real model class, so that its peaks outrank the formulas'. What it does not see stays theirs:
loading, evaluation, saving and the host.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import NamedTuple

from fullstep.job import Job, Settings
from fullstep.ledger import Caution, MemoryEstimate, OtherPeaks, Trace
from fullstep.physics.memory.cautions import memory_cautions
from fullstep.physics.memory.counters import on_the_card
from fullstep.quantities import GIB, Bounds

_OTHER_VERSION, _OWN_CLASSES = "F123", "F125"
"""cautions of a trace of other classes than the worksheet's"""


class Spread(NamedTuple):
    """Shares (1 = 100 %) by which a true peak may lie below and above a traced one."""

    below: float
    above: float

    def around(self, peak_bytes: float) -> Bounds:
        """A traced peak with its bounds [bytes].

        >>> Spread(0.5, 0.25).around(8)
        Bounds(low=4.0, likely=8, high=10.0)
        """
        return Bounds(peak_bytes * (1 - self.below), peak_bytes, peak_bytes * (1 + self.above))


class TraceTrust(NamedTuple):
    """From ``data/trace_trust.json``, where each has its evidence."""

    allocated: Spread
    reserved: Spread
    other_version: Spread
    """allocated, where another version of the classes was traced (F123)"""
    other_version_reserved: Spread
    own_classes: Spread
    """both counters, where the framework's own classes were not traced (F125)"""

    def of(self, notes: Collection[str]) -> tuple[Spread, Spread]:
        """(allocated, reserved) of a trace with these cautions."""
        if _OWN_CLASSES in notes:
            return self.own_classes, self.own_classes
        if _OTHER_VERSION in notes:
            return self.other_version, self.other_version_reserved
        return self.allocated, self.reserved


@cache
def trace_trust() -> TraceTrust:
    """Read once."""
    data = json.loads((Path(__file__).parent / "data" / "trace_trust.json").read_text(encoding="utf-8"))
    return TraceTrust(*(Spread(*data[counter]["value"]) for counter in TraceTrust._fields))


def outrank_with_trace(trace: Trace, settings: Settings, estimate: MemoryEstimate | None) -> MemoryEstimate:
    """The account of a step with the traced counters and instants.

    allocated and reserved: as traced, with the bounds of ``data/trace_trust.json``. device and needed: as for an estimate.

    Args:
        trace: [bytes] one rank's step, replayed on the card of ``settings``
        settings: layout and card
        estimate: [bytes] by the formulas, for what a trace does not see; None: they do not know the model. Its other peaks are
            unknown then, and of the host only what the ranks of a node offload is counted
    """
    of_allocated, of_reserved = trace_trust().of({note.code for note in trace.notes})
    allocated = of_allocated.around(trace.allocated_peak_bytes)
    replayed = of_reserved.around(max(trace.reserved_peak_bytes, trace.allocated_peak_bytes))
    reserved = replayed._replace(low=max(replayed.low, allocated.low))
    found = on_the_card(settings, allocated, reserved)
    return MemoryEstimate(
        parameters=trace.parameters,
        trainable_parameters=trace.trainable_parameters,
        instants=trace.instants,
        peak_at=trace.peak_at,
        allocated=found.allocated,
        reserved=found.reserved,
        device=found.device,
        needed=found.needed,
        other_peaks=estimate.other_peaks if estimate is not None else OtherPeaks(),
        host_bytes=estimate.host_bytes if estimate is not None else float(settings.machine.gpus * trace.host_bytes),
        host_at=estimate.host_at if estimate is not None else "training",
        cautions=(*_cautions(trace, settings), *_disagreement(found.allocated, estimate)),
    )


def _disagreement(traced: Bounds, estimate: MemoryEstimate | None) -> tuple[Caution, ...]:
    """That the formulas' bounds do not hold what was traced."""
    if estimate is None or estimate.allocated.low <= traced.likely <= estimate.allocated.high:
        return ()
    said = f"{estimate.allocated.low / GIB:.1f} to {estimate.allocated.high / GIB:.1f} GiB allocated"
    return (Caution("F124", f"the formulas say {said}, the trace {traced.likely / GIB:.1f} GiB"),)


def _cautions(trace: Trace, settings: Settings) -> tuple[Caution, ...]:
    """The formulas' cautions about the traced peak, the trace's own, and that it ran out of memory."""
    peak = next(instant for instant in trace.instants if instant.at == trace.peak_at)
    known = memory_cautions(settings, peak) if isinstance(settings, Job) else ()
    ran_out = [Caution("F120", f"the replayed step runs out of memory: {trace.out_of_memory}")] if trace.out_of_memory else []
    return (*ran_out, *trace.notes, *known)
