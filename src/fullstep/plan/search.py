"""The main job: every sensible way to run a worksheet, ranked; what does not fit and why; one verdict over all."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from fullstep.job import Worksheet
from fullstep.offers.currency import default_rates
from fullstep.offers.market import Market
from fullstep.plan.candidates import RuledOut, node_counts, search_machine, trimmed
from fullstep.plan.choices import Choice, RentOrBuy, choices, not_beaten, rent_or_buy
from fullstep.plan.layouts import layout_name, machine_words
from fullstep.plan.market import search_market
from fullstep.plan.missing import Missing, missing_data
from fullstep.plan.no_rental import over_budget
from fullstep.plan.overall import NOTHING, PlanVerdict, overall
from fullstep.plan.ranking import cheapest_first, ranked
from fullstep.plan.rejections import Rejection, rejected
from fullstep.plan.remedies import Remedy, remedies
from fullstep.plan.renting import Renter, with_rentals
from fullstep.plan.savers import level_words
from fullstep.plan.scaling import ScalingRow, scaling
from fullstep.plan.set_aside import Aside, rejected_for_time, set_aside, sifted
from fullstep.plan.timer import Clock, Timer
from fullstep.plan.trial import BUDGET, Judge, Size, Trial, Workbench

_COUNTS_IN_BUDGET, _PER_COUNT, _COUNTS = 3, 60, 8
"""numbers of nodes for which a budget is enough; estimates for each one more; numbers of nodes that are searched at most"""
_MARKET_BUDGET = 20_000
"""estimates for a whole market"""
_TOLD = 8
"""best options on the market of which it is said what they send; the others are left to a plan of their own"""
_TRIMMED = 6
"""best options for which it is worth finding out which free savers they do not need"""


class Plan(NamedTuple):
    """All that ``fullstep plan`` says."""

    verdict: PlanVerdict
    as_written: Trial
    options: Sequence[Trial]
    rejected: Sequence[Rejection]
    remedies: Sequence[Remedy]
    """single changes to the worksheet as written; empty where it fits as it is"""
    missing: Sequence[Missing]
    spent: int
    """estimates that the search took"""
    aside: Aside = NOTHING
    """what fits in memory, but ends too late, is slower than fewer servers, or costs too much"""
    scaling: Sequence[ScalingRow] = ()
    """what each number of servers makes of it; empty where only one is considered"""
    choices: Sequence[Choice] = ()
    """of the market, by what one chooses for"""
    not_beaten: Sequence[Trial] = ()
    """of the market: the Pareto front"""
    rent_or_buy: Sequence[RentOrBuy] = ()

    @property
    def is_market(self) -> bool:
        """No machine is named, and the market was searched for one."""
        return self.as_written.job.machine.usable_bytes is None

    @property
    def shown(self) -> Trial:
        """What a report is about: the best option; where there is none, what comes closest."""
        return next(chain(self.options, self.aside.dear, self.aside.trials), self.as_written)


class _Searched(NamedTuple):
    """Trials that fit or may fit, timed, and what does not, by number of nodes."""

    trials: dict[int, list[Trial]]
    ruled_out: dict[int, list[RuledOut]]


def plan(
    worksheet: Worksheet, size: Size, clock: Clock | None = None, renter: Renter | None = None, quick_clock: Clock | None = None, *,
    judge: Judge = lambda job: job,
) -> Plan:  # fmt: skip
    """Searches the worksheet's machine, or the market where it names none.

    Args:
        worksheet: what is wanted
        size: what sizes one completed job
        clock: what times what fits; without one, nothing is said of time
        renter: what prices it; without one nothing has a price, and there is no market
        quick_clock: times a market, where only the best options are timed by ``clock`` for good; None: ``clock``
        judge: puts to each job what records say of it

    Raises:
        InputError: the worksheet as written is at fault
    """
    bench, timer = _workbench(worksheet, size, judge), Timer(clock)
    as_written = timer(bench.as_written)
    if as_written.job.machine.usable_bytes is None and bench.may_change("machine.gpu"):
        nobody = Renter(Market((), {}, default_rates()))
        market = Workbench(worksheet, size, _MARKET_BUDGET, judge=judge)
        return _of_market(market, timer, Timer(quick_clock or clock), renter or nobody)
    made = _of_machine(bench, timer, as_written)
    return made if renter is None else _priced(made, renter)


def _priced(made: Plan, renter: Renter) -> Plan:
    """A plan of one machine with what its options cost, without those that cost more than the budget even at the low bound."""
    options = [with_rentals(trial, renter) for trial in made.options]
    kept, dear, out = [], [], []
    for trial in options:
        record = over_budget(option_words(trial), trial, ())
        if record is None:
            kept.append(trial)
        else:
            dear.append(trial)
            out.append(record)
    aside = made.aside._replace(dear=dear)
    verdict = overall(made.as_written, kept, made.remedies, aside)
    return made._replace(options=kept, verdict=verdict, aside=aside, rejected=[*out, *made.rejected])


def _of_market(bench: Workbench, timer: Timer, quick: Timer, renter: Renter) -> Plan:
    found = search_market(bench, quick, renter)
    as_written, options = timer(bench.as_written), cheapest_first(found.trials)
    told = {id(trial) for trial in options[:_TOLD]} | {id(choice.trial) for choice in choices(options)}
    options = [timer.with_traffic(trial) if id(trial) in told else trial for trial in options]
    aside = Aside(cheapest_first(found.late), dear=cheapest_first(found.dear))
    helps = [] if options or aside.trials or aside.dear else _helps(bench, options, found.ruled_out)
    made = Plan(
        verdict=overall(as_written, options, helps, aside),
        as_written=as_written,
        options=options,
        rejected=[*found.without, *rejected(as_written, found.ruled_out, options, helps)],
        remedies=helps,
        missing=missing_data(as_written.job),
        spent=bench.spent,
        aside=aside,
    )
    return with_choices(made)


def with_choices(made: Plan) -> Plan:
    """A plan of the market with what its options come down to."""
    options = made.options
    return made._replace(choices=choices(options), not_beaten=not_beaten(options), rent_or_buy=rent_or_buy(options))


def _of_machine(bench: Workbench, timer: Timer, as_written: Trial) -> Plan:
    searched = _search_nodes(bench, timer)
    written = [as_written] if as_written.job.machine.nodes in searched.trials else []  # goal.max_nodes may leave it out
    options = ranked(chain(written, *searched.trials.values()))
    options = ranked([trimmed(bench, trial, timer) for trial in options[:_TRIMMED]] + options[_TRIMMED:])
    made = _concluded(bench, timer, options, ranked(sifted(options).options), list(chain(*searched.ruled_out.values())))
    return made._replace(scaling=_scaled(bench, timer, searched, options), spent=bench.spent)


def _workbench(worksheet: Worksheet, size: Size, judge: Judge) -> Workbench:
    """With room for as many numbers of nodes as the worksheet allows, up to 128 and more."""
    bench = Workbench(worksheet, size, judge=judge)
    counts = min(len(_counts(bench)), _COUNTS)
    if counts <= _COUNTS_IN_BUDGET:
        return bench
    return Workbench(worksheet, size, BUDGET + _PER_COUNT * (counts - _COUNTS_IN_BUDGET), judge=judge)


def _counts(bench: Workbench) -> list[int]:
    """Numbers of nodes that the worksheet allows, ascending."""
    return [nodes for nodes in node_counts(bench.as_written.job) if bench.allows(bench.needed({"machine.nodes": nodes}))]


def _search_nodes(bench: Workbench, timer: Timer) -> _Searched:
    """One server first, then more: until something fits in memory and ends in time, on as many as the worksheet offers."""
    searched = _Searched({}, {})
    for nodes in _counts(bench):
        _search_on(bench, timer, nodes, searched)
        enough = any(trial.fits and not trial.may_be_late for trial in searched.trials[nodes])
        if enough and nodes >= bench.as_written.job.machine.nodes:
            break
    return searched


def _search_on(bench: Workbench, timer: Timer, nodes: int, into: _Searched) -> None:
    found = search_machine(bench, nodes)
    into.trials[nodes] = [timer(trial) for trial in found.trials if trial.verdict != "does_not_fit"]
    into.ruled_out[nodes] = found.ruled_out


def _concluded(bench: Workbench, timer: Timer, trials: Sequence[Trial], options: Sequence[Trial], ruled_out: Sequence[RuledOut]) -> Plan:
    """Options and what is set aside become a plan with its verdict."""
    as_written = timer(bench.as_written)
    helps = _helps(bench, trials, ruled_out)
    out = sifted(trials)
    aside = set_aside(out, timer)
    by_time = rejected_for_time(out, options, as_written.job.machine.nodes, timer)
    room = [*options, *aside.trials]
    by_memory = rejected(as_written, ruled_out, room, helps if as_written.verdict != "unknown" else ())
    return Plan(
        verdict=overall(as_written, options, helps, aside),
        as_written=as_written,
        options=options,
        rejected=[*by_time, *by_memory],
        remedies=helps,
        missing=missing_data(as_written.job),
        spent=bench.spent,
        aside=aside,
    )


def _scaled(bench: Workbench, timer: Timer, searched: _Searched, options: Sequence[Trial]) -> list[ScalingRow]:
    """The table for all numbers of nodes: those that decided nothing are searched for it, as far as the budget goes."""
    for nodes in _counts(bench):
        if nodes not in searched.trials and not bench.exhausted:
            _search_on(bench, timer, nodes, searched)
    known = {trial.job.machine.nodes for trial in options}
    return scaling(
        {
            nodes: [trial for trial in options if trial.job.machine.nodes == nodes] if nodes in known else searched.trials.get(nodes, [])
            for nodes in _counts(bench)
        },
        searched.ruled_out,
    )


def _helps(bench: Workbench, options: Sequence[Trial], ruled_out: Sequence[RuledOut]) -> list[Remedy]:
    """Single changes to the worksheet as written; where it names no card and none will do, to that on the largest cards."""
    if bench.as_written.verdict == "fits" or (bench.as_written.verdict == "unknown" and options):
        return []
    if bench.as_written.verdict != "unknown":
        return remedies(bench)
    sized = [group.closest for group in ruled_out if isinstance(group.closest, Trial)]
    if not sized:
        return []
    largest = max(sized, key=lambda trial: trial.job.machine.usable_bytes or 0)
    chosen = largest.changes
    machine = machine_words(largest.job)
    found = remedies(Workbench(largest.worksheet, bench.size, judge=bench.judge))
    return [remedy._replace(changes={**chosen, **remedy.changes}, words=f"{remedy.words}, with {machine}") for remedy in found]


def option_words(trial: Trial) -> str:
    """An option in one line: ``FSDP2, no recomputation, 4 rows x 2``."""
    job = trial.job
    where = layout_name(job.layout)
    if job.machine.nodes > 1:
        where += f" on {job.machine.nodes} nodes"
    card = "" if job.machine.card is None else f"{job.machine.gpus} x {job.machine.card.key}, "
    level = level_words(job) or "no recomputation"
    shown = "" if trial.changes.get("machine.gpu") is None else card
    rows = f"{job.batch.micro_batch} row{'s' if job.batch.micro_batch > 1 else ''} x {job.batch.accumulation}"
    return f"{shown}{where}, {level}, {rows}" + ("" if trial.changes else " (as written)")
