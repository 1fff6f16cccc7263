"""Offers on which it would fit, and that are out all the same: why."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from fullstep.offers.offer import Offer
from fullstep.plan.deadline import hours_words
from fullstep.plan.rejections import Limit, Rejection
from fullstep.plan.trial import Trial
from fullstep.quantities import GIB, HOUR_SECONDS, money


def host_too_small(what: str, trial: Trial, offers: Sequence[Offer]) -> Rejection:
    """Hosts that are too small to load it, or for what is offloaded."""
    most = max(offer.host_memory_gib or 0.0 for offer in offers)
    host = trial.answer.host
    return _record(what, "host_memory", offers, f"at {host.at}", needed=host.memory_peak_bytes, available=most * GIB, unit="bytes")


def too_late(what: str, trial: Trial, offers: Sequence[Offer]) -> Rejection | None:
    """Even at the low bound it ends after the deadline; None: it may not."""
    ending = trial.ending
    if ending is None or ending.state != "late" or ending.seconds is None:
        return None
    detail = f"the run takes {hours_words(ending.seconds)} with its set-up{_kind(trial)}"
    needed, available = ending.seconds.likely / HOUR_SECONDS, ending.deadline_seconds / HOUR_SECONDS
    return _record(what, "time", offers, detail, needed=needed, available=available, unit="hours")


def over_budget(what: str, trial: Trial, offers: Sequence[Offer]) -> Rejection | None:
    """On all of its rentals it costs more than the budget, even at the low bound; None: it may not."""
    goal = trial.job.goal
    known = [(rental.cost, rental) for rental in trial.rentals if rental.cost is not None]
    if goal.budget is None or not known or any(cost.low <= Decimal(goal.budget) for cost, _ in known):
        return None
    cost, rental = min(known, key=lambda pair: pair[0].likely)
    detail = f"{money(cost.likely, goal.currency)} at {rental.name}, at best {money(cost.low, goal.currency)}"
    return _record(what, "budget", offers, detail, needed=float(cost.likely), available=float(goal.budget), unit=goal.currency)


def not_known(what: str, trial: Trial, offers: Sequence[Offer]) -> Rejection:
    """How long it takes, and with it what it costs, is not known, and there is a limit to it."""
    open_parts = {} if trial.answer.timing is None else dict(trial.answer.timing.open)
    why = open_parts.get("step") or open_parts.get("run") or "its time is not known"
    goal = trial.job.goal
    if goal.finish_within_hours is not None:
        return _record(what, "time", offers, why, unit="hours")
    return _record(what, "budget", offers, why, unit=goal.currency)


def never_ends(what: str, offers: Sequence[Offer]) -> Rejection:
    """Interruptible alone, and taken away too often."""
    return _record(what, "time", offers, "interruptible alone, and taken away before a save is reached: it never ends")


def unknown_network(nodes: int, offers: Sequence[Offer]) -> Rejection:
    """Several machines whose network nobody states."""
    detail = "the network between machines is not stated; ask the seller, or take them all the same with --any-fabric"
    return _record(f"{nodes} nodes of {len(offers)} offers", "network", offers, detail)


def other_count(what: str, gpus: int, offers: Sequence[Offer]) -> Rejection:
    """Another number of GPUs than the worksheet fixes."""
    return _record(what, "availability", offers, f"machine.gpus is fixed to {gpus}")


def waits_for_network(what: str, offers: Sequence[Offer]) -> Rejection:
    """With fewer of these machines most of a step waits for communication already."""
    return _record(what, "network", offers, "with half as many of them most of a step waits for communication already")


def too_few(nodes: int, offers: Sequence[Offer]) -> Rejection:
    """Machines of one's own of which there are fewer."""
    return _record(f"{nodes} nodes of {len(offers)} offers", "availability", offers, "there are fewer machines", needed=float(nodes))


def _kind(trial: Trial) -> str:
    return ", interruptions and waits" if trial.rental is not None and trial.rental.interruptible else ""


def _record(
    what: str,
    limit: Limit,
    offers: Sequence[Offer],
    detail: str,
    *,
    needed: float | None = None,
    available: float | None = None,
    unit: str = "",
) -> Rejection:
    return Rejection(what, limit, needed, available, unit, None, False, max(1, len(offers)), detail, offers=tuple(offers))
