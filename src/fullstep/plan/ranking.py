"""Which option one would take first.

1. the verdict: fits, tight, unknown;
2. a run that likely ends within the deadline, where one is stated;
3. the optimizer (and the parameters) on the GPU before in host memory: servers that the worksheet offers anyway
   (``machine.nodes``) are taken before every step waits for host memory;
4. fewer servers;
5. the likely time per useful token, where it is known; times closer than ``TIE`` are equal;
6. what leaves the GPU: nothing, activations, the optimizer, the parameters;
7. where the GPUs of a node are joined by NVLink: recomputation (none, selective, full) before traffic (a replica on each GPU,
   ZeRO-1, ZeRO-2, ... FSDP, ZeRO-3), because there the traffic hides behind computation and recomputation does not;
   where they are joined by PCIe: traffic before recomputation;
8. a larger micro-batch;
9. fewer changes against the worksheet as written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter

from fullstep.job import Job
from fullstep.plan.layouts import LAYOUTS
from fullstep.plan.savers import OFFLOADS_OPTIMIZER, level_of
from fullstep.plan.trial import Trial, verdict_order

_FAST_LINKS = ("nvswitch", "nvlink_bridge")

TIE = 0.10
"""times per token that differ by less are no reason to prefer an option: the formulas meet published steps within 13 % on average"""

Rank = tuple[int, ...]


def rule(options: Sequence[Trial]) -> str:
    """The order of options in one line, for people: by what is known of them."""
    in_time = ", in time" if any(trial.ending is not None for trial in options) else ""
    fast_link = bool(options) and has_fast_link(options[0].job)
    speed = "less recomputation, less traffic" if fast_link else "less traffic, less recomputation"
    known = [trial.seconds_per_token is not None for trial in options]
    by_formulas = " by the formulas (the pilot's too)" if any("step_seconds" in trial.job.measured for trial in options) else ""
    time = f"likely time per token{by_formulas}{'' if all(known) else ' where it is known'}; within {100 * TIE:.0f} % of it: "
    return f"fit{in_time}, nothing offloaded, fewer servers, {time if any(known) else ''}{speed}, more rows at once"


def has_fast_link(job: Job) -> bool:
    """The GPUs of a node are joined by NVLink."""
    return job.machine.link in _FAST_LINKS


def rank(trial: Trial) -> Rank:
    """The key to sort options by; smaller is better."""
    job = trial.job
    offload, recompute = level_of(job)
    traffic = LAYOUTS[job.layout.strategy].traffic
    speed = (recompute, traffic) if has_fast_link(job) else (traffic, recompute)
    changes = sum(value is not None for value in trial.changes.values())
    waits = offload >= OFFLOADS_OPTIMIZER
    return (verdict_order(trial.verdict), waits, job.machine.nodes, offload, *speed, -job.batch.micro_batch, changes)


def ranked(trials: Iterable[Trial]) -> list[Trial]:
    """Options best first, each once, without those that do not fit."""
    seen: dict[tuple[tuple[str, object], ...], Trial] = {}
    for trial in trials:
        if trial.verdict != "does_not_fit":
            seen.setdefault(tuple(sorted(trial.changes.items(), key=itemgetter(0))), trial)
    return ordered(seen.values())


def ordered(trials: Iterable[Trial]) -> list[Trial]:
    """Trials best first."""
    placed: list[Trial] = []
    for _, alike in groupby(sorted(trials, key=_before_time), key=_before_time):
        placed += _by_time(list(alike))
    return placed


def cheapest_first(trials: Iterable[Trial]) -> list[Trial]:
    """Trials on rented machines: what fits, likely in time and within the budget, before the rest; then by the likely total cost, where the
    length of the run is not known by the price of a token, where no step can be timed by that of an hour; then by time and interruptions.

    A cheaper offer of the same machine never comes behind.
    """
    return sorted(trials, key=_by_cost)


def _by_cost(trial: Trial) -> tuple[float, ...]:
    rental, cost = trial.rental, trial.cost
    kept = (verdict_order(trial.verdict), trial.lateness, trial.over_budget)
    if rental is None:
        return (*kept, 3)
    each = rental.per_million_tokens
    known, price = (0, cost.likely) if cost is not None else (1, each) if each is not None else (2, rental.per_hour)
    hours = rental.run_hours.likely if rental.run_hours is not None else trial.seconds_per_token or 0.0
    return (*kept, known, float(price), hours, 0.0 if cost is None else cost.interruptions, float(rental.per_hour))


def _before_time(trial: Trial) -> tuple[int, ...]:
    """What counts before the time of a step."""
    verdict, waits, nodes, *_ = rank(trial)
    return (verdict, trial.lateness, waits, nodes)


def _by_time(trials: Sequence[Trial]) -> list[Trial]:
    """The fastest first; those that are hardly slower than it stand in the order of the rule, and so on; unknown times come last."""
    timed = sorted(((seconds, trial) for trial in trials if (seconds := trial.seconds_per_token) is not None), key=itemgetter(0))
    placed: list[Trial] = []
    while timed:
        fastest = timed[0][0]
        tied = [trial for seconds, trial in timed if seconds <= fastest * (1 + TIE)]
        placed += sorted(tied, key=rank)
        timed = timed[len(tied) :]
    return placed + sorted((trial for trial in trials if trial.seconds_per_token is None), key=rank)
