"""Options of commands that price a job: one's own machines, and what is known of interruptions and networks."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from math import isfinite
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fullstep.plan.renting import Renter

_MOST_HOURS = 100_000.0


def add_market_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    group = parser.add_argument_group("offers")
    group.add_argument("--machines", metavar="FILE", help="your own machines and prices (machines.toml here, where there is one)")
    every = "mean hours until an interruptible machine is taken away (1.5 to 24, likely 6)"
    group.add_argument("--interrupted-every", type=_hours(above_zero=True), metavar="HOURS", help=every)
    wait = "mean hours until there is another one (0.5 to 2, likely 1)"
    group.add_argument("--wait-for-machines", type=_hours(above_zero=False), metavar="HOURS", help=wait)
    fabric = "take several machines also where nobody states the network between them"
    group.add_argument("--any-fabric", action="store_true", help=fabric)


def renter_from(arguments: argparse.Namespace) -> Renter:
    """What prices jobs, by these options.

    Raises:
        InputError: the file of machines is at fault
    """
    from fullstep.api.prices import renter_of  # noqa: PLC0415 (after the arguments are known to be good)
    from fullstep.plan.renting import Odds  # noqa: PLC0415

    odds = Odds(
        interrupted_every_hours=arguments.interrupted_every,
        wait_hours=arguments.wait_for_machines,
        any_fabric=arguments.any_fabric,
    )
    return renter_of(arguments.machines, odds)


def renter_if_stated(arguments: argparse.Namespace) -> Renter | None:
    """The same where any of the options is given; None: the offers of today, of which one machine needs only its own."""
    stated = (arguments.machines, arguments.interrupted_every, arguments.wait_for_machines)
    return renter_from(arguments) if arguments.any_fabric or any(each is not None for each in stated) else None


def _hours(*, above_zero: bool) -> Callable[[str], float]:
    """A check for a number of hours."""

    def hours(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not (isfinite(value) and 0 <= value <= _MOST_HOURS and (value > 0 or not above_zero)):
            raise argparse.ArgumentTypeError(f"{text}; allowed: hours, {'above' if above_zero else 'from'} 0 to {_MOST_HOURS:,.0f}")
        return value

    return hours
