"""What fits and is no option all the same: runs that end too late, and servers that the network makes useless."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from fullstep.plan.deadline import Ending, hours_words
from fullstep.plan.layouts import layout_name
from fullstep.plan.ranking import ordered
from fullstep.plan.rejections import Rejection, settings_of
from fullstep.plan.timer import Timer, exposed_share, pace_of, step_seconds
from fullstep.plan.trial import Trial
from fullstep.quantities import HOUR_SECONDS, Bounds


class Aside(NamedTuple):
    """What fits and is no option, for a verdict to speak of."""

    trials: list[Trial]
    """the number of nodes with the fastest step first, each of them best first"""
    hint: str = ""
    """what a faster network would make of more nodes; empty: nothing, or it is not what holds them back"""
    dear: Sequence[Trial] = ()
    """what costs more than the budget even at the low bound, cheapest first"""


class Sifted(NamedTuple):
    """Trials that fit, by what time says of them."""

    options: list[Trial]
    late: list[Trial]
    """even at the low bound they end after the deadline"""
    slower: list[Trial]
    """on so many nodes the best is slower than on fewer, because of the network"""


def sifted(trials: Iterable[Trial]) -> Sifted:
    """Options apart from what time rules out.

    Args:
        trials: timed, without those that do not fit
    """
    found = Sifted([], [], [])
    known = list(trials)
    useless = nodes_in_vain(known)
    for trial in known:
        late = trial.ending is not None and trial.ending.state == "late"
        (found.slower if trial.job.machine.nodes in useless else found.late if late else found.options).append(trial)
    return found


def set_aside(found: Sifted, timer: Timer) -> Aside:
    """What was sifted out, best first."""
    trials = ordered([*found.late, *found.slower])
    fastest = best_by_nodes(trials)
    trials.sort(key=lambda trial: _pace(fastest[_nodes(trial)]) if _nodes(trial) in fastest else math.inf)
    return Aside(trials, next((words for nodes in sorted(fastest) if (words := _faster_network_words(fastest[nodes], timer))), ""))


def _faster_network_words(trial: Trial, timer: Timer) -> str:
    """What the run would take on the slowest network that is sold on which it ends in time."""
    stated, ending = trial.job.machine.network_gbit_s, trial.ending
    if ending is None or stated is None or _nodes(trial) == 1:
        return ""
    deadline = ending.deadline_seconds
    found = timer.least_network(trial, lambda timing: timing.run is not None and timing.run.seconds.likely <= deadline)
    if found is None or found[1].run is None:
        return ""
    rate, takes = found[0], hours_words(found[1].run.seconds)
    return f"with {rate:,.0f} Gbit/s per server, not {stated:,.0f}, {_nodes(trial)} servers would take {takes}"


def nodes_in_vain(trials: Sequence[Trial]) -> set[int]:
    """Numbers of nodes whose best layout is no faster than that of fewer, and would be if all its communication were hidden."""
    best: tuple[float, int] | None = None
    useless: set[int] = set()
    for nodes, trial in sorted(best_by_nodes(trials).items()):
        seconds = _pace(trial)
        if best is not None and seconds >= best[0]:
            if seconds * (1 - exposed_share(trial)) < best[0]:
                useless.add(nodes)
        else:
            best = (seconds, nodes)
    return useless


def best_by_nodes(trials: Iterable[Trial]) -> dict[int, Trial]:
    """Of what fits and whose time is known, what comes first on each number of nodes."""
    found: dict[int, Trial] = {}
    for trial in ordered(trials):
        nodes = trial.job.machine.nodes
        if trial.fits and step_seconds(trial) is not None and nodes not in found:
            found[nodes] = trial
    return found


def rejected_for_time(aside: Sifted, options: Sequence[Trial], written_nodes: int, timer: Timer) -> list[Rejection]:
    """One record for each layout that ends too late, one for each number of nodes that are slower than fewer.

    Args:
        aside: what time ruled out
        options: what is left, best first
        written_nodes: nodes that the worksheet states
        timer: what times a layout on another network
    """
    late = sorted(aside.late, key=_layout_on)
    records = [_too_late(list(group), options, written_nodes) for _, group in groupby(late, key=_layout_on)]
    records.sort(key=lambda record: record.needed or 0.0)
    fastest = best_by_nodes((*options, *aside.late, *aside.slower))
    by_nodes = groupby(sorted(aside.slower, key=_nodes), key=_nodes)
    return records + [_in_vain(nodes, len(list(group)), fastest, timer) for nodes, group in by_nodes]


def _too_late(trials: Sequence[Trial], options: Sequence[Trial], written_nodes: int) -> Rejection:
    first, ending, seconds = min(_endings(trials), key=lambda known: known[2].likely)
    nodes, layout = _layout_on(first)
    what = layout + ("" if nodes == written_nodes else f", {nodes} node{'s' if nodes > 1 else ''}")
    on = "" if ending.on_gbit_s is None else f" with {ending.on_gbit_s:,.0f} Gbit/s per node"
    return Rejection(
        what, "time", seconds.likely / HOUR_SECONDS, ending.deadline_seconds / HOUR_SECONDS, "hours",
        _smallest_change(first, options), False, len(trials), f"the run takes {hours_words(seconds)}{on}",
    )  # fmt: skip


def _endings(trials: Iterable[Trial]) -> Iterator[tuple[Trial, Ending, Bounds]]:
    """Trials whose time is known, best first, each with its own."""
    for trial in ordered(trials):
        if trial.ending is not None and trial.ending.seconds is not None:
            yield trial, trial.ending, trial.ending.seconds


def _smallest_change(late: Trial, options: Sequence[Trial]) -> dict[str, object] | None:
    """The fewest settings that turn it into an option that ends in time; of equal ones the better option's."""
    mine = _settings(late)
    changes = [
        {key: value for key, value in _settings(option).items() if value != mine[key]}
        for option in options
        if option.fits and option.ending is not None and option.ending.state == "in_time"
    ]
    return min(changes, key=len, default=None)


def _settings(trial: Trial) -> dict[str, object]:
    batch = trial.job.batch
    return {**settings_of(trial), "batch.micro_batch": batch.micro_batch, "batch.accumulation": batch.accumulation}


def _in_vain(nodes: int, count: int, fastest: Mapping[int, Trial], timer: Timer) -> Rejection:
    trial = fastest[nodes]
    fewer = min((other for other in fastest if other < nodes), key=lambda other: _pace(fastest[other]))
    slower = _pace(fastest[fewer])
    found = timer.least_network(trial, lambda timing: (pace_of(trial.job, timing) or math.inf) < slower)
    rate = None if found is None else found[0]
    detail = f"a step takes {_step_words(trial)} at best, {_step_words(fastest[fewer])} on {fewer} node{'s' if fewer > 1 else ''}"
    return Rejection(
        f"{nodes} nodes", "network", rate, trial.job.machine.network_gbit_s, "Gbit/s",
        None if rate is None else {"machine.network_gbit_s": int(rate)}, False, count, detail,
    )  # fmt: skip


def _pace(trial: Trial) -> float:
    return math.inf if trial.seconds_per_token is None else trial.seconds_per_token


def _step_words(trial: Trial) -> str:
    seconds = step_seconds(trial)
    return "an unknown time" if seconds is None else f"{seconds.likely:.3g} s"


def _nodes(trial: Trial) -> int:
    return trial.job.machine.nodes


def _layout_on(trial: Trial) -> tuple[int, str]:
    """The number of nodes, and the layout in words, with the card where the search chose it."""
    machine, name = trial.job.machine, layout_name(trial.job.layout)
    chosen = machine.card is not None and trial.changes.get("machine.gpu") is not None
    return machine.nodes, f"{machine.gpus} x {machine.card.key}, {name}" if chosen and machine.card is not None else name
