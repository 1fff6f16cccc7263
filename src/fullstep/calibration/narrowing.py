"""Bounds drawn in around what near records measured. Nothing leaves the bounds of the formulas, and no formula is changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from fullstep.evidence import Assumption
from fullstep.ledger import MemoryEstimate, StepPart, StepTime
from fullstep.quantities import Bounds

Places = Mapping[str, tuple[float, ...]]
"""of each figure, where near records lie in the bounds of their own estimates: from -1 (low) by way of 0 (likely) to 1 (high)"""
KEPT_SHARE = 0.5
"""Of the room between a near record's place and each end of the bounds. Assumed: a near worksheet is not the same one, so that half of the
doubt stays."""
COMMUNICATION = "network"
"""what bounds the parts of a step in which GPUs wait for one another"""
OF_MEMORY = ("allocated", "reserved", "device")
"""figures whose places narrow memory; those of the others narrow time"""
SAID = "evidence."
"""before a figure that near records narrow, in the key of the assumption that says so"""


def narrowed(bounds: Bounds, places: Sequence[float]) -> Bounds:
    """The bounds drawn in around the places of near records, always inside of what they were.

    >>> narrowed(Bounds(8, 10, 14), [0.5])
    Bounds(low=10.0, likely=12.0, high=13.0)
    >>> narrowed(Bounds(8, 10, 14), [0.0, 0.5]).low
    9.0
    """
    if not places:
        return bounds
    low, likely, high = (_at(bounds, place) for place in (min(places), median(places), max(places)))
    return Bounds(low - KEPT_SHARE * (low - bounds.low), likely, high + KEPT_SHARE * (bounds.high - high))


def narrow_memory(estimate: MemoryEstimate, places: Places) -> MemoryEstimate:
    """Each counter narrowed by its own places, ``needed`` by those of allocated; none falls below the one that it holds."""
    allocated = narrowed(estimate.allocated, places.get("allocated", ()))
    needed = narrowed(estimate.needed, places.get("allocated", ()))
    reserved = _over(narrowed(estimate.reserved, places.get("reserved", ())), allocated)
    device = _over(narrowed(estimate.device, places.get("device", ())), reserved)
    return estimate._replace(allocated=allocated, reserved=reserved, device=device, needed=needed)


def without_memory(assumptions: Sequence[Assumption]) -> tuple[Assumption, ...]:
    """Of an answer whose memory was traced, and not narrowed: what is said of time stays."""
    said = {f"{SAID}{what}" for what in OF_MEMORY}
    return tuple(each for each in assumptions if each.key not in said)


def narrow_step(step: StepTime, places: Places) -> StepTime:
    """What is achieved of the card's compute and of the links, narrowed: each part of the step by the places of its kind."""
    whole = places.get("step", ())
    computing, talking = (*places.get("compute", ()), *whole), (*places.get("communication", ()), *whole)
    if not computing and not talking:
        return step
    parts = tuple(
        StepPart(part.what, narrowed(part.seconds, talking if part.bound_by == COMMUNICATION else computing), part.bound_by)
        for part in step.parts
    )
    seconds = sum((part.seconds for part in parts), Bounds(0, 0, 0))
    changes: dict[str, Any] = {"seconds": seconds, "parts": parts}
    amount = step.tokens_per_second_per_gpu.likely * step.seconds.likely
    changes["tokens_per_second_per_gpu"] = _rate(amount, seconds)
    if step.model_flops_utilization is not None:
        changes["model_flops_utilization"] = _rate(step.model_flops_utilization.likely * step.seconds.likely, seconds)
    exposed = sum((part.seconds for part in parts if part.bound_by == COMMUNICATION), Bounds(0, 0, 0))
    rest = seconds.likely - exposed.likely
    if step.exposed_communication_fraction is not None:
        changes["exposed_communication_fraction"] = Bounds(*(each / (each + rest) if each + rest > 0 else 0.0 for each in exposed))
    return replace(step, **changes)


def _at(bounds: Bounds, place: float) -> float:
    low, likely, high = bounds
    return likely + place * (high - likely if place > 0 else likely - low)


def _over(bounds: Bounds, inner: Bounds) -> Bounds:
    """End by end at least the counter inside of it."""
    return Bounds(*(max(end, least) for end, least in zip(bounds, inner, strict=True)))


def _rate(amount: float, seconds: Bounds) -> Bounds:
    return Bounds(amount / seconds.high, amount / seconds.likely, amount / seconds.low)
