"""For how long machines are billed beyond the work: pauses between runs, steps of billing, minimum charges."""

from __future__ import annotations

from math import ceil
from typing import Literal, NamedTuple

from fullstep.cost.interruption import rounding_per_interruption_seconds
from fullstep.cost.rent import Rent
from fullstep.cost.usage import Usage

PauseKind = Literal["kept", "stopped", "ended"]
_WHOLE = 1e-9


class Pause(NamedTuple):
    """What is done with machines between two runs."""

    kind: PauseKind
    billed_seconds: float
    """for one pause: the idle hours, or what starting again takes"""


def pause_between_runs(usage: Usage, rent: Rent) -> Pause:
    """The cheapest that the provider allows, by the hours that it bills.

    kept: the machine runs on. stopped: where the GPUs of a stopped machine cost nothing; then it has to start again. ended: it is given
    back, and everything is set up anew.

    Args:
        usage: its ``idle_seconds`` is how long a pause lasts
        rent: from whom; where nobody said what a stopped machine costs, it is not stopped
    """
    choices = [Pause("kept", usage.idle_seconds), Pause("ended", usage.setup_seconds)]
    if rent.provider.stopped == "compute_free" or rent.is_own:
        choices.append(Pause("stopped", usage.resume_seconds))
    return min(choices, key=lambda pause: pause.billed_seconds)


def rounding_seconds(period_seconds: float, step_seconds: float) -> float:
    """From the end of a billed period to the end of its last billing step [s]: ``ceil(period / step) * step - period``.

    Example: 100 minutes by the hour are billed as two: 20 minutes more.

    >>> rounding_seconds(6000, 3600)
    1200
    """
    return max(0.0, ceil(period_seconds / step_seconds - _WHOLE) * step_seconds - period_seconds)


def expected_rounding_seconds(interruptions: float, mean_seconds: float, step_seconds: float) -> float:
    """The same for machines that are taken away: for each life its share of a step, and half a step for the last, which ends anywhere.

    >>> round(expected_rounding_seconds(0, 7200, 3600))
    1800
    """
    return interruptions * rounding_per_interruption_seconds(mean_seconds, step_seconds) + step_seconds / 2


def minimum_seconds(period_seconds: float, least_seconds: float) -> float:
    """What a minimum charge adds to a billed period [s].

    >>> minimum_seconds(600, 3600), minimum_seconds(7200, 3600)
    (3000, 0.0)
    """
    return max(0.0, least_seconds - period_seconds)
