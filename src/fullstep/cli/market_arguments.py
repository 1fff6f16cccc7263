"""Options of commands that price a job: one's own machines, and what is known of interruptions and networks."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from math import isfinite
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from fullstep.plan.renting import Renter, Wishes

_MOST_HOURS = 100_000.0


def add_market_arguments(parser: argparse.ArgumentParser, *, sellers: bool = True) -> None:
    """The options; ``sellers``: with those that look at a part of the market."""
    group = parser.add_argument_group("offers")
    group.add_argument("--machines", metavar="FILE", help="your own machines and prices (machines.toml here, where there is one)")
    every = "mean hours until an interruptible machine is taken away (1.5 to 24, likely 6)"
    group.add_argument("--interrupted-every", type=_hours(above_zero=True), metavar="HOURS", help=every)
    wait = "mean hours until there is another one (0.5 to 2, likely 1)"
    group.add_argument("--wait-for-machines", type=_hours(above_zero=False), metavar="HOURS", help=wait)
    fabric = "take several machines also where nobody states the network between them"
    group.add_argument("--any-fabric", action="store_true", help=fabric)
    parser.set_defaults(sellers=[], places=None, on_demand=False)
    if sellers:
        names = "this seller alone, as often as needed, or NAME,NAME; your own machines: own"
        group.add_argument("--provider", action="append", dest="sellers", metavar="NAME", help=names)
        group.add_argument("--region", dest="places", metavar="TEXT", help="regions with this in their name")
        group.add_argument("--on-demand", action="store_true", help="no machines that somebody may take away")


def renter_from(arguments: argparse.Namespace) -> Renter:
    """What prices jobs, by these options.

    Raises:
        InputError: the file of machines is at fault, or no such seller is known
    """
    from fullstep.api.prices import renter_of  # noqa: PLC0415 (after the arguments are known to be good)
    from fullstep.plan.renting import Wishes  # noqa: PLC0415

    wishes = Wishes(
        interrupted_every_hours=arguments.interrupted_every,
        wait_hours=arguments.wait_for_machines,
        any_fabric=arguments.any_fabric,
        providers=tuple(name for word in arguments.sellers for name in word.split(",") if name),
        region=arguments.places or "",
        on_demand_only=arguments.on_demand,
    )
    renter = renter_of(arguments.machines, wishes)
    if not renter.market.offers and (wishes.providers or wishes.region):
        _no_such_seller(wishes, renter_of(arguments.machines))
    return renter


def renter_if_stated(arguments: argparse.Namespace) -> Renter | None:
    """The same where any of the options is given; None: the offers of today, of which one machine needs only its own."""
    stated = (arguments.machines, arguments.interrupted_every, arguments.wait_for_machines, arguments.places)
    flags = arguments.any_fabric or arguments.on_demand or arguments.sellers
    return renter_from(arguments) if flags or any(each is not None for each in stated) else None


def _no_such_seller(wishes: Wishes, everybody: Renter) -> NoReturn:
    """Nothing is offered by these sellers, or there."""
    from fullstep.errors import Fault, InputError  # noqa: PLC0415
    from fullstep.job.refusal import did_you_mean  # noqa: PLC0415

    known = sorted({offer.provider for offer in everybody.market.offers})
    where = f" in {wishes.region}" if wishes.region else ""
    near = (did_you_mean(name, known) for name in wishes.providers if name not in known)
    remedy = next(filter(None, near), "Prices of others are entered in machines.toml.")
    found = f"no offer of {', '.join(wishes.providers) or 'anybody'}{where}"
    raise InputError(Fault("--provider, --region", found, ", ".join(known), remedy))


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
