"""Parts of a step's time as they add up, and the kernels behind them."""

from __future__ import annotations

from typing import Literal, NamedTuple

from fullstep.physics.timing.rates import Rates, seconds_at, times
from fullstep.physics.timing.traffic import Traffic
from fullstep.quantities import Bounds

TimePhase = Literal["forward", "backward", "optimizer_step"]
Launched = Literal["forward", "backward", "again"]
"""by Python as forward runs, by autograd's thread, or by Python where a block's forward runs again in backward"""
BoundBy = Literal["compute", "memory", "launch", "pcie"]


class TimePart(NamedTuple):
    """One part of a step on one GPU. Forward and backward are of one micro-batch; parts add up."""

    what: str
    phase: TimePhase
    seconds: Bounds
    bound_by: BoundBy


class Tally:
    """Seconds by (what, phase, bound), and kernels by what launches them."""

    __slots__ = ("launches", "parts")

    def __init__(self) -> None:
        self.parts: dict[tuple[str, TimePhase, BoundBy], Bounds] = {}
        self.launches: dict[Launched, float] = {"forward": 0.0, "backward": 0.0, "again": 0.0}

    def add(self, what: str, phase: TimePhase, seconds: Bounds, bound_by: BoundBy) -> None:
        if seconds.high > 0:
            key = (what, phase, bound_by)
            self.parts[key] = self.parts.get(key, Bounds(0, 0, 0)) + seconds

    def add_all(self, other: Tally, blocks: float) -> None:
        """``blocks`` times another one."""
        for (what, phase, bound_by), seconds in other.parts.items():
            self.add(what, phase, times(seconds, blocks), bound_by)
        for by, count in other.launches.items():
            self.launches[by] += count * blocks

    def add_traffic(self, what: str, moved: Traffic, rates: Rates) -> None:
        """Bytes at the achieved bandwidth."""
        self.add(what, "forward", seconds_at(moved.forward_bytes, rates.memory_bytes_per_second), "memory")
        self.add(what, "backward", seconds_at(moved.backward_bytes, rates.memory_bytes_per_second), "memory")
        self.launches["forward"] += moved.forward_launches
        self.launches["backward"] += moved.backward_launches

    def busy(self, phase: TimePhase) -> Bounds:
        """Seconds of a phase so far."""
        total = Bounds(0, 0, 0)
        for (_, part_phase, _), seconds in self.parts.items():
            if part_phase == phase:
                total += seconds
        return total

    def as_parts(self) -> tuple[TimePart, ...]:
        return tuple(TimePart(what, phase, seconds, bound_by) for (what, phase, bound_by), seconds in self.parts.items())
