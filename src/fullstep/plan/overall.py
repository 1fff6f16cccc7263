"""The one verdict over all options: which of the four answers, and why: memory first, then time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Literal, NamedTuple

from fullstep.physics.network.required import EXPOSED_SHARE
from fullstep.plan.deadline import deadline_words, hours_words
from fullstep.plan.layouts import layout_name, machine_words, place_words
from fullstep.plan.remedies import Remedy
from fullstep.plan.savers import OFFLOADS_OPTIMIZER, level_of, level_words
from fullstep.plan.set_aside import Aside
from fullstep.plan.timer import exposed_share, needed_gbit_s, step_seconds
from fullstep.plan.trial import Trial
from fullstep.quantities import GIB, HOUR_SECONDS, money

Overall = Literal["one_server_replicated", "one_server_sharded", "several_servers", "undecided", "nothing_fits"]
_USUAL_HOST_BYTES = 1024 * GIB
"""a need for more host memory than this is a condition of the verdict"""
NOTHING = Aside([])


class PlanVerdict(NamedTuple):
    """The verdict on the worksheet as a whole."""

    answer: Overall
    reason: str
    sentence: str
    decide_by: str | None
    """what would settle it, where it is undecided or hangs on a figure that is not sure"""


def overall(as_written: Trial, options: Sequence[Trial], helps: Sequence[Remedy], aside: Aside = NOTHING) -> PlanVerdict:
    """One verdict over all options, with its reason; of rented machines with their price.

    Args:
        as_written: the worksheet without changes
        options: best first
        helps: single changes that make the worksheet as written fit
        aside: what fits in memory, but ends too late, is slower than fewer servers, or costs too much
    """
    if options:
        return _with_budget(_of_options(options, aside), options[0])
    if aside.dear:
        return _over_budget(aside)
    return _too_late(aside) if aside.trials else _nothing_fits(as_written, helps)


def _of_options(options: Sequence[Trial], aside: Aside) -> PlanVerdict:
    """By memory and time."""
    best = options[0]
    where = _where(best)
    if not best.fits:
        return _tight(best, where)
    where += _host_condition(best)
    if best.may_be_late:
        reason = f"{_takes(best)}; {best.answer.memory.reason}"
        decide_by = _ask_for_the_network(best) or _measure_a_step(best)
        return PlanVerdict("undecided", reason, f"Not decidable yet: {where}; {_takes(best)}.", decide_by)
    ends = "" if best.ending is None else f"; {_takes(best)}"
    reason = best.answer.memory.reason + ends
    settle = None if best.ending is None or best.ending.is_sure else _measure_a_step(best)
    if best.job.machine.nodes > 1:
        fewer = [trial for trial in (*options, *aside.trials) if trial.fits and trial.job.machine.nodes < best.job.machine.nodes]
        need, why = _several(best, fewer)
        doubtful = next((trial for trial in fewer if trial.ending is not None and trial.ending.state == "perhaps"), None)
        settle = _ask_for_the_network(best) or (settle if doubtful is None else _measure_a_step(doubtful))
        return PlanVerdict("several_servers", f"{why}; {reason}", f"{need}: {where}{ends}.{_network_words(best)}", settle)
    one = "One GPU is enough" if best.job.machine.gpus == 1 else "One server is enough"
    layout = best.job.layout
    divided = layout.state_ranks * layout.tensor * layout.pipeline > 1 or layout.strategy == "layer_split"
    answer: Overall = "one_server_sharded" if divided else "one_server_replicated"
    return PlanVerdict(answer, reason, f"{one}: {where}{ends}.", settle)


def _over_budget(aside: Aside) -> PlanVerdict:
    """Everything that fits costs more than the budget, or ends after the deadline."""
    best = aside.dear[0]
    budget = money(Decimal(best.job.goal.budget or 0), best.job.goal.currency)
    what = "Nothing that ends in time" if any(trial.lateness for trial in aside.trials) else "Nothing"
    return PlanVerdict("nothing_fits", _where(best), f"{what} stays within the budget of {budget}: the cheapest is {_where(best)}.", None)


def _with_budget(verdict: PlanVerdict, best: Trial) -> PlanVerdict:
    """What the budget makes of a verdict on the best option."""
    goal = best.job.goal
    if goal.budget is None or not best.fits:
        return verdict
    budget = money(Decimal(goal.budget), goal.currency)
    if best.cost is None:
        open_parts = {} if best.answer.timing is None else dict(best.answer.timing.open)
        why = open_parts.get("step") or open_parts.get("run") or open_parts.get("run.cost") or "no price is known"
        sentence = f"{verdict.sentence} Whether it stays within the budget of {budget} is open: {why}."
        settle = "state data.tokens, or measure a step and state measured.step_seconds"
        return PlanVerdict("undecided", why, sentence, settle)
    if best.over_budget:
        sentence = f"{verdict.sentence} Its likely cost, {money(best.cost.likely, goal.currency)}, is more than the budget of {budget}."
        return verdict._replace(sentence=sentence)
    return verdict


def price_words(trial: Trial) -> str:
    """Where it is rented and what it costs; a plus: and what is not known."""
    rental, currency = trial.rental, trial.job.goal.currency
    if rental is None or trial.changes.get("machine.gpu") is None:  # the machine is named: its price stands elsewhere
        return ""
    if rental.cost is None:
        return f" at {rental.name} ({money(rental.per_hour, currency)} an hour)"
    low, likely = (money(amount, currency) for amount in (rental.cost.low, rental.cost.likely))
    high = "no end" if rental.cost.high is None else money(rental.cost.high, currency)
    plus = "+" if rental.cost.bill.unknown else ""
    return f" at {rental.name} ({likely}{plus} in all, {low} to {high})"


def _tight(best: Trial, where: str) -> PlanVerdict:
    reason = best.answer.memory.reason
    settle = "run one full step of it and put its peak into [measured], then ask again"
    if best.verdict == "unknown":
        settle = "state machine.gpu, or machine.gpu_memory_gib, then ask again"
    return PlanVerdict("undecided", reason, f"Not decidable yet: {where}; {reason}.", settle)


def _several(best: Trial, fewer: Sequence[Trial]) -> tuple[str, str]:
    """What several servers are needed for, and why those that fit on fewer nodes do not do: memory, time, or the optimizer's place."""
    if "machine.nodes" in best.job.fixed:
        return "So many servers are stated, and no other number was tried", "machine.nodes is fixed"
    layout, gpus = best.job.layout, best.job.machine.gpus
    cut = layout.tensor * layout.pipeline * layout.context
    if cut > gpus * (best.job.machine.nodes - 1):
        return f"Several servers are needed for the degrees as stated ({layout_name(layout)})", f"they take {cut} GPUs, a server has {gpus}"
    if not fewer:
        return "Several servers are needed for the memory", "no layout fits on fewer nodes"
    if any(trial.ending is None or trial.ending.state in ("in_time", "open") for trial in fewer):
        return "Several servers keep the optimizer on the GPUs", "on fewer nodes the optimizer would have to be offloaded"
    fastest = min(fewer, key=_run_seconds)
    servers, hours = _nodes_words(fastest.job.machine.nodes), _run_seconds(fastest) / HOUR_SECONDS
    need = f"Several servers are needed for the time ({servers} would take {hours:,.1f} h)"
    return need, f"on {servers} {_takes(fastest)}"


def _too_late(aside: Aside) -> PlanVerdict:
    """Everything that fits ends after the deadline."""
    closest = aside.trials[0]
    most = max(trial.job.machine.nodes for trial in aside.trials)
    up_to = "" if most == 1 else f" on up to {most} servers"
    hint = aside.hint or _servers_at_least(closest, most)
    sentence = f"Nothing ends in time{up_to}: closest comes {_where(closest)}; {_takes(closest)}{'; ' if hint else ''}{hint}."
    return PlanVerdict("nothing_fits", f"{_takes(closest)}; {closest.answer.memory.reason}", sentence, None)


def _servers_at_least(trial: Trial, tried: int) -> str:
    """How many servers it would take at least, by dividing the likely run over them; empty: so many were tried."""
    if trial.ending is None or trial.ending.seconds is None:
        return ""
    least = math.ceil(trial.job.machine.nodes * trial.ending.seconds.likely / trial.ending.deadline_seconds)
    return f"at least {least:,} servers would be needed" if least > tried else ""


def _takes(trial: Trial) -> str:
    """The run against its deadline, in words."""
    ending = trial.ending
    if ending is None:
        return ""
    deadline = deadline_words(ending.deadline_seconds)
    if ending.seconds is None:
        why = dict(trial.answer.timing.open).get("run", "") if trial.answer.timing is not None else ""
        return f"whether the run ends within {deadline} is open: {why}"
    on = "" if ending.on_gbit_s is None else f" on a network of {ending.on_gbit_s:,.0f} Gbit/s per server"
    return f"the run takes {hours_words(ending.seconds)}{on}, the deadline is {deadline}"


def _run_seconds(trial: Trial) -> float:
    """The likely time by which to call one trial the fastest: of the run, else of a step [s]."""
    if trial.ending is not None and trial.ending.seconds is not None:
        return trial.ending.seconds.likely
    step = step_seconds(trial)
    return math.inf if step is None else step.likely


def _measure_a_step(trial: Trial) -> str:
    """What would settle whether the run ends in time: data that is missing, or a measured step, with the figure to compare it with."""
    timing, ending = trial.answer.timing, trial.ending
    if timing is None or ending is None or timing.step is None:
        return "measure a step and put its time into [measured] step_seconds, then ask again"
    if timing.run is None:
        return "state data.tokens, then ask again"
    steps = timing.run.optimizer_steps * timing.step.seconds.likely
    whole = timing.run.seconds.likely if ending.seconds is None else ending.seconds.likely  # with set-up and waits on a rented machine
    if trial.rental is not None and trial.rental.interruptible:  # what interruptions add grows with the work
        allowed = timing.step.seconds.likely * ending.deadline_seconds / whole
    else:
        allowed = (ending.deadline_seconds - (whole - steps)) / timing.run.optimizer_steps
    within = f"up to {allowed:.3g} s a step the run ends within {deadline_words(ending.deadline_seconds)}"
    return f"run a few steps of {_where(trial)}, and put their time into [measured] step_seconds: {within}"


def _network_words(trial: Trial) -> str:
    """What the network between the servers must be, or what the stated one costs, as a sentence of its own."""
    stated, rate = trial.job.machine.network_gbit_s, needed_gbit_s(trial)
    if rate is None:
        return ""
    enough = f"{rate:,.0f} Gbit/s per server keep communication under a tenth of the step"
    if stated is None and trial.ending is not None and trial.ending.on_gbit_s == rate:
        return " The network is not stated: so much keeps communication under a tenth of the step."
    if stated is None:
        return f" The network is not stated: {enough}."
    share = exposed_share(trial)
    if share <= EXPOSED_SHARE:
        return f" The network of {stated:,.0f} Gbit/s per server is enough: {100 * share:.0f} % of the step waits for it."
    return f" On the network of {stated:,.0f} Gbit/s per server {100 * share:.0f} % of the step is communication; {enough}."


def _ask_for_the_network(trial: Trial) -> str | None:
    machine = trial.job.machine
    if machine.nodes == 1 or trial.answer.timing is None:
        return None
    if machine.network_gbit_s is not None:
        late = trial.may_be_late and machine.rdma is None
        return "state machine.rdma: with RDMA a network carries about twice what sockets do" if late else None
    return "state machine.network_gbit_s and machine.rdma: how long a step takes on several servers hangs on them"


def _nodes_words(nodes: int) -> str:
    return "one server" if nodes == 1 else f"{nodes} servers"


def _where(trial: Trial) -> str:
    """Machine, layout, what it costs in speed where it costs any, and where it is rented at what price if the market was searched."""
    job = trial.job
    where = place_words(job)
    cost = level_words(job)
    return (f"{where}, {cost}" if cost else where) + price_words(trial)


def _host_condition(trial: Trial) -> str:
    """What the host memory must be, where nobody said what it is and it is more than servers have as a matter of course."""
    host, job = trial.answer.host, trial.job
    offloads = level_of(job)[0] >= OFFLOADS_OPTIMIZER
    if host.verdict != "unknown" or not (offloads or host.memory_peak_bytes > _USUAL_HOST_BYTES):
        return ""
    needed_gib = math.ceil(host.memory_peak_bytes / (1 - job.goal.reserve_fraction) / GIB)
    return f", if each server has {needed_gib:,} GiB of host memory"


def _nothing_fits(as_written: Trial, helps: Sequence[Remedy]) -> PlanVerdict:
    reason = as_written.answer.memory.reason
    where = machine_words(as_written.job)
    if as_written.job.machine.usable_bytes is None:
        where, reason = "any machine on the market", "no machine that is for rent is large enough"
    sentence = f"Nothing fits on {where} without altering the training."
    if helps:
        first = helps[0]
        sentence = f"Nothing fits on {where}; the smallest change that would help: {first.words}"
        sentence += " (it alters the training)." if first.changes_training else "."
    return PlanVerdict("nothing_fits", reason, sentence, None)
