"""What a trace saw, as the object ``trace`` of an answer."""

from __future__ import annotations

from typing import Any

from fullstep.ledger import MemoryEstimate, Trace
from fullstep.report.json import instant_as_dict

_IN_A_MICRO_BATCH = ("inputs", "forward", "loss", "backward")


def trace_as_dict(trace: Trace, estimated: MemoryEstimate | None) -> dict[str, Any]:
    """All of a trace but its instants, which are those of the answer's memory.

    Args:
        trace: what was seen
        estimated: the formulas' account beside it; None: they do not know the model
    """
    return {
        "estimated": None if estimated is None else _estimate_as_dict(estimated),
        "allocated_peak_bytes": trace.allocated_peak_bytes,
        "reserved_peak_bytes": trace.reserved_peak_bytes,
        "host_bytes": trace.host_bytes,
        "out_of_memory": trace.out_of_memory or None,
        "timeline": [moment._asdict() for moment in trace.timeline],
        "largest_tensors": [{**tensor._asdict(), "shape": list(tensor.shape)} for tensor in trace.largest],
        "modules": [share._asdict() for share in trace.modules],
        "flops_per_step": trace.flops_per_step,
        "flops_by_phase": flops_by_phase(trace),
        "blocks": trace.blocks,
        "blocks_traced": trace.blocks_traced,
        "operations": trace.operations,
        "segments": trace.segments,
        "notes": [note._asdict() for note in trace.notes],
        "versions": dict(trace.versions),
        "seconds": trace.seconds,
    }


def flops_by_phase(trace: Trace) -> dict[str, int]:
    """Floating-point operations of one optimizer step by phase, in the order of the step; phases without any are left out.

    The micro-batches of the timeline stand for all of the step, as in ``flops_per_step``; what is outside of them is done once.
    """
    found: dict[str, int] = {}
    of_traced = sum(moment.flops for moment in trace.timeline if moment.micro_batch)
    of_all = trace.flops_per_step - sum(moment.flops for moment in trace.timeline if not moment.micro_batch)
    for moment in trace.timeline:
        if moment.flops:
            found[moment.phase] = found.get(moment.phase, 0) + moment.flops
    return {phase: flops * of_all // of_traced if phase in _IN_A_MICRO_BATCH else flops for phase, flops in found.items()}


def _estimate_as_dict(estimated: MemoryEstimate) -> dict[str, Any]:
    """The formulas' account, under the keys of ``memory``."""
    return {
        "allocated_peak_bytes": estimated.allocated.as_whole(),
        "reserved_peak_bytes": estimated.reserved.as_whole(),
        "device_peak_bytes": estimated.device.as_whole(),
        "needed_bytes": estimated.needed.as_whole(),
        "peak_at": estimated.peak_at,
        "instants": [instant_as_dict(instant) for instant in estimated.instants],
    }
