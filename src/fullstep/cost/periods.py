"""For how long machines are billed beyond the work: pauses between runs, steps of billing, minimum charges."""

from __future__ import annotations

from decimal import Decimal
from math import ceil, exp, expm1
from typing import Literal, NamedTuple

from fullstep.cost.interruption import rounding_per_interruption_seconds
from fullstep.cost.rent import Rent
from fullstep.cost.usage import Usage
from fullstep.offers.provider import Provider
from fullstep.quantities import HOUR_SECONDS

PauseKind = Literal["kept", "stopped", "ended"]
MONTH_SECONDS = 8766 * HOUR_SECONDS / 12
_WHOLE = 1e-9


class Pause(NamedTuple):
    """What is done with machines between two runs."""

    kind: PauseKind
    idle_seconds: float
    """for which they run on"""
    again_seconds: float
    """until the first step of the next run"""

    @property
    def billed_seconds(self) -> float:
        """What one pause costs in hours."""
        return self.idle_seconds + self.again_seconds


def possible_pauses(usage: Usage, rent: Rent) -> list[Pause]:
    """What the provider allows between two runs.

    kept: the machine runs on. stopped: where the GPUs of a stopped machine cost nothing and the price of its disk is known; then it has to
    start again. ended: it is given back with its disk, and everything is set up anew.
    """
    found = [Pause("kept", usage.idle_seconds, 0.0), Pause("ended", 0.0, usage.setup_seconds)]
    known = stopped_disk_usd_gb_month(rent.provider) is not None
    if rent.is_own or (rent.provider.stopped == "compute_free" and known):
        found.append(Pause("stopped", 0.0, usage.resume_seconds))
    return found


def pause_disk_cost(pause: Pause, usage: Usage, rent: Rent) -> float:
    """What the disk costs in one pause, in the currency of the bill; one that is given back costs nothing, nor does one's own."""
    prices = {"kept": rent.provider.disk_usd_gb_month, "stopped": stopped_disk_usd_gb_month(rent.provider), "ended": None}
    price = None if rent.is_own else prices[pause.kind]
    month = float(price or 0) * float(rent.for_one_usd) * usage.disk_gb
    return month * usage.idle_seconds / MONTH_SECONDS


def stopped_disk_usd_gb_month(provider: Provider) -> Decimal | None:
    """Of a machine that is stopped: where nothing else is said, as of one that runs."""
    own = provider.stopped_disk_usd_gb_month
    return provider.disk_usd_gb_month if own is None else own


def billed_periods(run_seconds: float, pause: Pause, usage: Usage) -> list[tuple[float, int]]:
    """From the start of a machine to its end or stop, with how many of each there are [s].

    Machines that are kept have one for all runs; the others one for each run, of which the first is set up from nothing.
    """
    gaps = usage.runs - 1
    first = usage.setup_seconds + run_seconds
    if not gaps:
        return [(first, 1)]
    if pause.kind == "kept":
        return [(first + gaps * (pause.idle_seconds + run_seconds), 1)]
    return [(first, 1), (pause.again_seconds + run_seconds, gaps)]


def rounding_seconds(period_seconds: float, step_seconds: float) -> float:
    """From the end of a billed period to the end of its last billing step [s]: ``ceil(period / step) * step - period``.

    Example: 100 minutes by the hour are billed as two: 20 minutes more.

    >>> rounding_seconds(6000, 3600)
    1200
    """
    return max(0.0, ceil(period_seconds / step_seconds - _WHOLE) * step_seconds - period_seconds)


def expected_rounding_seconds(period_seconds: float, interruptions: float, mean_seconds: float, step_seconds: float) -> float:
    """The same for a machine that may be taken away [s]::

        P r(period) + E[N] (step / (1 - e**(-step/M)) - M) + (1 - P) step / 2,    P = e**(-period / M)

    r is the rounding of an undisturbed period, E[N] how often one is interrupted: each life that ends early has its share of a step, and
    the last one ends anywhere within one.

    Args:
        period_seconds: that nothing interrupts [s]
        interruptions: expected in it
        mean_seconds: M [s]
        step_seconds: of the bill [s]

    >>> round(expected_rounding_seconds(6000, 0, 1e12, 3600)), round(expected_rounding_seconds(1e6, 0, 7200, 3600))
    (1200, 1800)
    """
    spared = exp(-period_seconds / mean_seconds)
    last = spared * rounding_seconds(period_seconds, step_seconds) + (1 - spared) * step_seconds / 2
    return last + interruptions * rounding_per_interruption_seconds(mean_seconds, step_seconds)


def minimum_seconds(billed_seconds: float, least_seconds: float) -> float:
    """What a minimum charge adds to a period, its rounding included [s].

    >>> minimum_seconds(600, 3600), minimum_seconds(7200, 3600)
    (3000, 0.0)
    """
    return max(0.0, least_seconds - billed_seconds)


def minimum_per_interruption_seconds(mean_seconds: float, least_seconds: float, step_seconds: float = 0.0) -> float:
    """What a minimum charge adds to a machine that is taken away, its rounding included [s].

    ::

        billed by the second   E[(m - L)+]           = m - M (1 - e**(-m/M))          for its exponential life L
        by steps of d          E[(m - d ceil(L/d))+] = sum over k d < m of (1 - q) q**(k-1) (m - k d),   q = e**(-d/M)

    Example: a minimum of one mean life: ``1 - (1 - 1/e)`` = 0.368 of it; of one step: nothing, as a step that has begun is billed.

    Args:
        mean_seconds: M [s]
        least_seconds: m [s]
        step_seconds: d; steps below a thousandth of m make no difference [s]

    >>> round(minimum_per_interruption_seconds(1.0, 1.0), 3), minimum_per_interruption_seconds(1.0, 1.0, 1.0)
    (0.368, 0.0)
    """
    if step_seconds <= least_seconds / 1000:
        return least_seconds + mean_seconds * expm1(-least_seconds / mean_seconds)
    spared = exp(-step_seconds / mean_seconds)
    steps = range(1, ceil(least_seconds / step_seconds))
    return sum(((1 - spared) * spared ** (step - 1) * (least_seconds - step * step_seconds) for step in steps), 0.0)
