"""How much of a step's communication hides behind compute, and how much the step waits for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fullstep.physics.network.collective import Collective, Phase
from fullstep.physics.network.cost import collective_seconds
from fullstep.physics.network.fabric import Fabric
from fullstep.quantities import Bounds

PHASES: tuple[Phase, ...] = ("forward", "backward", "after_backward")


class PhaseSeconds(NamedTuple):
    """Compute of one optimizer step, all its micro-batches together, without waiting for others [s]."""

    forward: float
    backward: float
    after_backward: float = 0.0
    """the optimizer's step"""

    @property
    def total(self) -> float:
        return self.forward + self.backward + self.after_backward


class Talk(NamedTuple):
    """Time of one collective of a phase when nothing runs beside it."""

    phase: Phase
    seconds: float
    overlaps: bool
    window: float


def hidden_behind(window_seconds: float, everywhere_seconds: float, last_seconds: float, last_share: float) -> float:
    """Part of a phase's communication that its compute hides [s].

    ``everywhere`` may run beside all of the compute C, ``last`` only beside the last share w of it (the micro-batch that reduces)::

        hidden = min(everywhere, (1 - w) C + left) + min(last, w C)      left: of w C, what last does not fill

    Example: 10 s of compute, w = 1/4, 3 s everywhere, 4 s at the end: ``min(3, 7.5) + min(4, 2.5)`` = 5.5 s.

    Args:
        window_seconds: C [s]
        everywhere_seconds: [s]
        last_seconds: [s]
        last_share: w

    Returns:
        [s]

    Source:
        Li et al. 2020, PyTorch Distributed, section 3.2; Zhao et al. 2023, PyTorch FSDP, section 3.3: one stream computes, one communicates

    >>> hidden_behind(10, 3, 4, 0.25)
    5.5
    """
    behind_last = min(last_seconds, last_share * window_seconds)
    return behind_last + min(everywhere_seconds, window_seconds - behind_last)


def talks(collectives: Sequence[Collective], fabric: Fabric, end: int) -> list[Talk] | None:
    """Times of collectives at one end of the bounds; None: a link that one of them needs is not known."""
    found: list[Talk] = []
    for one in collectives:
        seconds = collective_seconds(one, fabric)
        if seconds is None:
            return None
        found.append(Talk(one.phase, seconds[end], one.overlaps, one.window))
    return found


def waits(found: Sequence[Talk], compute: PhaseSeconds) -> float:
    """Time that the step waits: what the library runs beside nothing, and of the rest what a phase's compute does not hide [s]."""
    total = 0.0
    for phase, window in zip(PHASES, compute, strict=True):
        here = [talk for talk in found if talk.phase == phase]
        beside = [talk for talk in here if talk.overlaps]
        late = [talk for talk in beside if talk.window < 1]
        last = sum(talk.seconds for talk in late)
        everywhere = sum(talk.seconds for talk in beside) - last
        hidden = hidden_behind(window, everywhere, last, min((talk.window for talk in late), default=1.0))
        total += sum(talk.seconds for talk in here) - hidden
    return total


def communication_seconds(collectives: Sequence[Collective], fabric: Fabric) -> Bounds | None:
    """All communication of a step, one call after another, nothing beside it [s]; None: a link is not known."""
    total = Bounds.exact(0.0)
    for one in collectives:
        seconds = collective_seconds(one, fabric)
        if seconds is None:
            return None
        total += seconds
    return total


def exposed_seconds(collectives: Sequence[Collective], fabric: Fabric, compute: PhaseSeconds) -> Bounds | None:
    """What communication adds to a step [s].

    low: all that could run beside compute does, also what the library runs alone, and links reach their best. likely: what the library
    overlaps is hidden as far as its phase computes; the first gather and the last reduction are not. high: nothing is hidden.

    Example: 2 s of gathers beside 1 s of forward and a first gather of 0.1 s alone: low ``2.1 - 1``, likely ``0.1 + 2 - 1``, high 2.1 s.

    Args:
        collectives: of one optimizer step
        fabric: line rates
        compute: of one optimizer step, by phase [s]

    Returns:
        low, likely, high [s]; None: a link is not known (``fabric.why_unknown``)

    Valid:
        compute that communication slows down (multiprocessors and memory that NCCL takes: 1 to 14 % of what is exposed on processors) is
        not in likely
    """
    ends = [talks(collectives, fabric, end) for end in range(3)]
    best, usual, worst = ends
    if best is None or usual is None or worst is None:
        return None
    low = waits([talk._replace(overlaps=True) for talk in best], compute)
    likely = waits(usual, compute)
    return Bounds(min(low, likely), likely, max(likely, sum(talk.seconds for talk in worst)))
