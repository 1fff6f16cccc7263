"""What a market search comes down to: an answer for each way of choosing, the options that no other beats, and whether to buy."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from math import inf
from typing import NamedTuple

from fullstep.offers.offer import Offer
from fullstep.offers.owned import pays_from_hours
from fullstep.plan.trial import Trial


class Choice(NamedTuple):
    """One option with what it is the answer to."""

    labels: tuple[str, ...]
    trial: Trial


class RentOrBuy(NamedTuple):
    """A machine that one would buy beside the cheapest rent of the same."""

    bought: Offer
    rented: str
    rent_per_hour: Decimal
    pays_from_hours: Decimal | None
    """of work; None: never"""


def choices(options: Sequence[Trial]) -> list[Choice]:
    """The cheapest, the fastest within the budget, the cheapest on demand and interruptible, the best machine of one's own; each once.

    Args:
        options: cheapest first, each with its rental
    """
    sure = [trial for trial in options if trial.fits and not trial.may_be_late]
    found: dict[int, tuple[list[str], Trial]] = {}
    for label, trial in _answers(_comparable(sure or options)):
        found.setdefault(id(trial), ([], trial))[0].append(label)
    return [Choice(tuple(labels), trial) for labels, trial in found.values()]


def _comparable(options: Sequence[Trial]) -> list[Trial]:
    """Those whose cost is known, where it is of any; else those of which the price of a token is; else all."""
    for known in ("cost", "per_million_tokens"):
        able = [trial for trial in options if trial.rental is not None and getattr(trial.rental, known) is not None]
        if able:
            return able
    return list(options)


def _answers(options: Sequence[Trial]) -> list[tuple[str, Trial]]:
    affordable = [trial for trial in options if not trial.over_budget]
    wanted = [
        ("cheapest", options),
        ("cheapest on demand", [trial for trial in options if not _interruptible(trial)]),
        ("cheapest interruptible", [trial for trial in options if _interruptible(trial)]),
        ("on your own machine", [trial for trial in options if trial.rental is not None and trial.rental.offer.is_own]),
    ]
    found = [(label, group[0]) for label, group in wanted if group]
    if affordable:
        budget = affordable[0].job.goal.budget
        found.append(("fastest" if budget is None else "fastest within budget", min(affordable, key=_hours)))
    return found


def not_beaten(options: Sequence[Trial]) -> list[Trial]:
    """The Pareto front: options that fit, and than which no other costs less, ends earlier and is interrupted less.

    Where the cost of some is not known, these are left out.
    """
    scored = [(_score(trial), trial) for trial in _comparable([trial for trial in options if trial.fits])]
    return [trial for score, trial in scored if not any(_beats(other, score) for other, _ in scored)]


def rent_or_buy(options: Sequence[Trial]) -> list[RentOrBuy]:
    """For each machine that one would buy: from how many hours of work on that pays, beside the cheapest rent of the same cards."""
    found: list[RentOrBuy] = []
    for trial in options:
        rental = trial.rental
        offer = None if rental is None else rental.offer
        if rental is None or offer is None or offer.purchase is None or offer.running_per_hour is None or offer.on_demand is None:
            continue
        same = [other.rental for other in options if other.rental is not None and _is_rent_of(offer, rental.machines, other)]
        cheapest = min(same, key=lambda each: each.per_hour, default=None)
        if cheapest is not None:
            rent = cheapest.per_hour / cheapest.machines
            scale = rental.per_hour / rental.machines / offer.on_demand.per_hour if offer.on_demand.per_hour else Decimal(1)  # its currency
            hours = pays_from_hours(offer.purchase * scale, offer.running_per_hour * scale, rent)
            found.append(RentOrBuy(offer, cheapest.offer.name, rent, hours))
    return found


def _is_rent_of(bought: Offer, machines: int, other: Trial) -> bool:
    rental = other.rental
    if rental is None or rental.interruptible or rental.offer.is_own:
        return False
    return rental.offer.cards == bought.cards and rental.offer.gpus == bought.gpus and rental.machines == machines


def _interruptible(trial: Trial) -> bool:
    return trial.rental is not None and trial.rental.interruptible


def _hours(trial: Trial) -> float:
    rental = trial.rental
    if rental is not None and rental.run_hours is not None:
        return rental.run_hours.likely
    return inf if trial.seconds_per_token is None else trial.seconds_per_token


def _score(trial: Trial) -> tuple[float, float, float]:
    """What it costs, how long it takes, and how often it is interrupted."""
    rental, cost = trial.rental, trial.cost
    if rental is None:
        return inf, _hours(trial), 0.0
    if cost is not None:
        return float(cost.likely), _hours(trial), cost.interruptions
    return float(rental.per_million_tokens or rental.per_hour), _hours(trial), float(rental.interruptible)


def _beats(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one != other and all(mine <= its for mine, its in zip(one, other, strict=True))
