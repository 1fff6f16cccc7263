"""How much of a step's communication hides behind compute, and how much the step waits for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

from fullstep.hardware.links import spread_share, taken_share
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


@lru_cache(maxsize=256)
def slowest_of(gpus: int) -> float:
    """How many standard deviations the slowest of n equal GPUs lies above the mean: the mean of the largest of n normal values.

    ::

        z((n - 3/8) / (n + 1/4))     z: quantile of the normal distribution

    Example: 8 GPUs 1.43, 128 GPUs 2.58, 1,024 GPUs 3.23.

    Args:
        gpus: n, that wait for each other in every step

    Returns:
        standard deviations

    Source:
        Blom 1958, Statistical estimates and transformed beta-variables

    Valid:
        within 1 % of the exact means from 8 on; one GPU 0; exact means 1.42, 2.60, 3.24

    >>> [round(slowest_of(gpus), 2) for gpus in (1, 8, 128, 1024)]
    [0.0, 1.43, 2.58, 3.23]
    """
    return NormalDist().inv_cdf((gpus - 0.375) / (gpus + 0.25))


def slowed_seconds(hidden_seconds: float, taken: float) -> float:
    """What compute loses to collectives beside it, which occupy a share s of the multiprocessors [s]: ``s * hidden``.

    Example: 0.2 s of gathers beside compute on 16 of 132 multiprocessors: 0.024 s.

    Source:
        NCCL, one block of a collective per multiprocessor; that compute slows by as much is arithmetic

    Valid:
        compute bound by its multiprocessors; memory bandwidth that both use is not counted

    >>> round(slowed_seconds(0.2, 16 / 132), 3)
    0.024
    """
    return taken * hidden_seconds


def added_seconds(found: Sequence[Talk], compute: PhaseSeconds, fabric: Fabric, slowest: float) -> float:
    """What is waited for, what compute loses to collectives beside it, and the wait for the slowest GPU [s]."""
    exposed = waits(found, compute)
    hidden = sum(talk.seconds for talk in found) - exposed
    return exposed + slowed_seconds(hidden, taken_share(fabric.architecture).likely) + slowest * spread_share().likely * compute.total


def added_at(collectives: Sequence[Collective], fabric: Fabric, compute: PhaseSeconds, end: int) -> float | None:
    """What communication adds to a step where links achieve what they do at one end of the bounds [s]; None: a link is not known."""
    found = talks(collectives, fabric, end)
    return None if found is None else added_seconds(found, compute, fabric, _slowest(collectives, fabric))


def _slowest(collectives: Sequence[Collective], fabric: Fabric) -> float:
    meets = any(one.kind != "send" for one in collectives)
    return slowest_of(fabric.gpus_per_node * fabric.nodes) if meets else 0.0


def exposed_seconds(
    collectives: Sequence[Collective], fabric: Fabric, compute: PhaseSeconds, at_best: PhaseSeconds | None = None
) -> Bounds | None:
    """What communication adds to a step [s].

    low: all that could run beside compute does, also what the library runs alone, links reach their best, GPUs are alike. likely: what the
    library overlaps is hidden as far as its phase computes, and slows compute by the multiprocessors that it takes; the first gather and
    the last reductions are not hidden; everybody waits for the slowest GPU. high: nothing is hidden.

    Example: 2 s of gathers beside 1 s of forward and a first gather of 0.1 s alone: low ``2.1 - 1``, likely ``0.1 + 2 - 1``, high 2.1 s.

    Args:
        collectives: of one optimizer step
        fabric: line rates
        compute: of one optimizer step, by phase [s]
        at_best: the same where the GPU does its best, which hides less; as ``compute`` where it is not given

    Returns:
        low, likely, high [s]; None: a link is not known (``fabric.why_unknown``)

    Valid:
        see the table of published scaling
    """
    ends = [talks(collectives, fabric, end) for end in range(3)]
    best, usual, worst = ends
    if best is None or usual is None or worst is None:
        return None
    low = waits([talk._replace(overlaps=True) for talk in best], at_best or compute)
    slowest = _slowest(collectives, fabric)
    likely = added_seconds(usual, compute, fabric, slowest)
    high = sum(talk.seconds for talk in worst) + slowest * spread_share().high * compute.total
    return Bounds(min(low, likely), likely, max(likely, high))
