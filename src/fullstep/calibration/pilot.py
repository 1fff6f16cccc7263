"""What a pilot run measured, put in the place of what was estimated.

A counter that was measured is exact. A counter that was not keeps its estimated distance to the nearest one that was:
reserved stands on allocated, device on reserved, and what the verdict compares (``needed``) on allocated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from fullstep.ledger import MemoryEstimate
from fullstep.quantities import GIB, Bounds

MEMORY_KEYS: dict[str, str] = {
    "allocated_peak_gib": "allocated",
    "reserved_peak_gib": "reserved",
    "device_peak_gib": "device",
}
"""keys of [measured] that are memory, and the counter that each of them is"""


class Comparison(NamedTuple):
    """One figure of a pilot beside the estimate of it. Memory in bytes; anything else in the unit of its key."""

    measured: float
    estimated: Bounds | None
    """None: fullstep has no estimate of it yet, or the formulas do not know the model"""
    traced: Bounds | None = None
    """None: not traced"""


def compare_with_pilot(
    estimate: MemoryEstimate | None, measured: Mapping[str, float], traced: MemoryEstimate | None = None
) -> dict[str, Comparison]:
    """Every figure of ``[measured]`` beside what was said of it before, under its worksheet key (memory keys end in ``_bytes`` here).

    Args:
        estimate: [bytes] by the formulas; None: they do not know the model
        measured: the worksheet's [measured] table
        traced: [bytes] as a trace saw it; None: there is none
    """
    rows: dict[str, Comparison] = {}
    for key, value in measured.items():
        if value is None:
            continue
        counter = MEMORY_KEYS.get(key)
        if counter is None:
            rows[key] = Comparison(value, None)
        else:
            rows[f"{counter}_peak_bytes"] = Comparison(value * GIB, getattr(estimate, counter, None), getattr(traced, counter, None))
    return rows


def outrank(estimate: MemoryEstimate, measured: Mapping[str, float]) -> MemoryEstimate:
    """The estimate with the measured counters in place of the estimated ones; the same object when none was measured.

    Args:
        estimate: [bytes] by the formulas or as traced
        measured: the worksheet's [measured] table; of it the keys of :data:`MEMORY_KEYS`, in GiB
    """
    found = {MEMORY_KEYS[key]: value * GIB for key, value in measured.items() if key in MEMORY_KEYS and value is not None}
    if not found:
        return estimate
    allocated, reserved, device, needed = estimate.allocated, estimate.reserved, estimate.device, estimate.needed
    if "allocated" in found:
        allocated = Bounds.exact(found["allocated"])
        reserved = _moved(reserved, estimate.allocated, allocated)
        device = _moved(device, estimate.allocated, allocated)
        needed = _moved(needed, estimate.allocated, allocated)
    if "reserved" in found:
        device = _moved(device, reserved, Bounds.exact(found["reserved"]))
        reserved = Bounds.exact(found["reserved"])
        allocated = _at_most(allocated, reserved.high)
        needed = _at_most(needed, device.high)
    if "device" in found:
        device = Bounds.exact(found["device"])
        reserved, allocated, needed = (_at_most(bounds, device.high) for bounds in (reserved, allocated, needed))
    return estimate._replace(allocated=allocated, reserved=reserved, device=device, needed=needed)


def _moved(bounds: Bounds, base: Bounds, measured_base: Bounds) -> Bounds:
    """``bounds`` with its distance to ``base`` kept, end by end, on top of what was measured; never below that."""
    ends = sorted(measured + max(end - start, 0.0) for end, start, measured in zip(bounds, base, measured_base, strict=True))
    return Bounds(*ends)


def _at_most(bounds: Bounds, limit: float) -> Bounds:
    """A counter that lies inside a measured one cannot exceed it."""
    return Bounds(*(min(end, limit) for end in bounds))
