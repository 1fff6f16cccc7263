"""Trials with the time that they take. A search sizes memory alone; only what fits is timed, each once."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from operator import itemgetter

from fullstep.job import Job
from fullstep.ledger import Answer, Timing
from fullstep.plan.deadline import Ending, judge_run
from fullstep.plan.trial import Trial
from fullstep.quantities import HOUR_SECONDS, Bounds

Clock = Callable[[Job, Answer], Answer]
"""what adds time, traffic and the run to an answer: the formulas, or in tests a function made by hand"""

SOLD_GBIT_S = (10.0, 25.0, 50.0, 100.0, 200.0, 400.0, 800.0, 1600.0, 3200.0, 6400.0)
"""line rates per server that providers and vendors sell"""


class Timer:
    """Times trials of one worksheet; equal ones once. Without a clock it leaves them as they are."""

    def __init__(self, clock: Clock | None) -> None:
        self._clock = clock
        self._known: dict[tuple[tuple[str, object], ...], Trial] = {}

    def __call__(self, trial: Trial) -> Trial:
        """The trial with its time, and how that stands to the deadline."""
        if self._clock is None:
            return trial
        key = tuple(sorted(trial.changes.items(), key=itemgetter(0)))
        if key not in self._known:
            answer = self._clock(trial.job, trial.answer)
            alike = self._clock(_by_formulas(trial.job), trial.answer) if trial.job.measured or trial.job.from_records.places else answer
            timed = trial._replace(answer=answer, seconds_per_token=pace_of(trial.job, alike.timing))
            self._known[key] = timed._replace(ending=self._ending(timed))
        return self._known[key]

    def with_traffic(self, trial: Trial) -> Trial:
        """A trial that was timed without it, with what it sends."""
        timing = trial.answer.timing
        full = None if self._clock is None else self._clock(trial.job, trial.answer).timing
        if timing is None or full is None:
            return trial
        return trial._replace(answer=replace(trial.answer, timing=timing._replace(traffic=full.traffic)))

    def on_network(self, trial: Trial, gbit_s: float) -> Timing | None:
        """What is known of time if each node had a network of that line rate [Gbit/s]."""
        job = replace(trial.job, machine=replace(trial.job.machine, network_gbit_s=gbit_s))
        return None if self._clock is None else self._clock(job, trial.answer).timing

    def least_network(self, trial: Trial, is_enough: Callable[[Timing], bool]) -> tuple[float, Timing] | None:
        """The slowest network that is sold, above the stated one, with which something holds [Gbit/s]; None: with none."""
        stated = trial.job.machine.network_gbit_s or 0.0
        for rate in SOLD_GBIT_S:
            if rate > stated and (timing := self.on_network(trial, rate)) is not None and is_enough(timing):
                return rate, timing
        return None

    def _ending(self, trial: Trial) -> Ending | None:
        """Where several nodes have a network that nobody stated, by the line rate that they need: a condition, not a figure of the plan."""
        timing, deadline_hours = trial.answer.timing, trial.job.goal.finish_within_hours
        if deadline_hours is None or timing is None:
            return None
        rate = None
        if timing.run is None and trial.job.machine.nodes > 1 and trial.job.machine.network_gbit_s is None:
            rate = needed_gbit_s(trial)
            timing = timing if rate is None else self.on_network(trial, rate) or timing
        return judge_run(None if timing.run is None else timing.run.seconds, deadline_hours * HOUR_SECONDS, rate)


def _by_formulas(job: Job) -> Job:
    """Without what was measured of its own step or of near ones."""
    return replace(job, measured={}, from_records=job.from_records._replace(places={}))


def needed_gbit_s(trial: Trial) -> float | None:
    """The likely line rate per node that keeps communication under a tenth of the step, in whole Gbit/s; None: none is needed, or known."""
    timing = trial.answer.timing
    rate = None if timing is None or timing.traffic is None or trial.job.machine.nodes == 1 else timing.traffic.required_gbit_s_per_node
    return None if rate is None else float(max(1, math.ceil(rate.likely)))


def step_seconds(trial: Trial) -> Bounds | None:
    """Of one optimizer step [s]; None: not known."""
    timing = trial.answer.timing
    return None if timing is None or timing.step is None else timing.step.seconds


def run_seconds(trial: Trial) -> Bounds | None:
    """Of the whole run [s]; None: not known, or no data set is stated."""
    timing = trial.answer.timing
    return None if timing is None or timing.run is None else timing.run.seconds


def exposed_share(trial: Trial) -> float:
    """Likely share of the step that is communication which nothing hides."""
    timing = trial.answer.timing
    share = None if timing is None or timing.step is None else timing.step.exposed_communication_fraction
    return 0.0 if share is None else share.likely


def pace_of(job: Job, timing: Timing | None) -> float | None:
    """Likely time of the whole machine per useful token [s]; None: not known.

    Options of one worksheet make the same step of the same tokens, but for cards without a stated number of rows over all ranks.
    """
    if timing is None or timing.step is None:
        return None
    return 1 / (timing.step.tokens_per_second_per_gpu.likely * job.machine.gpus * job.machine.nodes)
