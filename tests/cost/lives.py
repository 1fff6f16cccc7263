"""Runs on machines that are taken away, life by life."""

from __future__ import annotations

from math import inf
from random import Random

from fullstep.cost.taking import Saving, Taking


def simulated(work: float, saving: Saving, taking: Taking, random: Random) -> tuple[float, float, float]:
    """One run, event by event: seconds billed, seconds on the wall, interruptions."""
    signalled = taking.notice_seconds > 0.0 and taking.notice_seconds >= saving.save_seconds
    cap = inf if taking.cap_seconds is None else taking.cap_seconds
    left, clock, waited, stops = work, 0.0, 0.0, 0
    until_save = saving.interval_seconds
    while True:
        chance_stop = inf if taking.mean_seconds == inf else random.expovariate(1.0 / taking.mean_seconds)
        life = min(chance_stop, cap - saving.save_seconds if signalled else cap)
        now = taking.restart_seconds if stops else 0.0
        if signalled:
            while now < life and left > 0.0:
                stretch = min(until_save, left, life - now)
                now, left, until_save = now + stretch, left - stretch, until_save - stretch
                if until_save <= 0.0 < left:
                    now, until_save = now + saving.save_seconds, saving.interval_seconds
            if left <= 0.0:
                return clock + now, clock + now + waited, stops
            clock += max(now, life) + saving.save_seconds if life > (taking.restart_seconds if stops else 0.0) else life
        else:
            while True:
                is_last = left <= saving.interval_seconds * (1 + 1e-9)
                ends = now + (left if is_last else saving.interval_seconds + saving.save_seconds)
                if ends > life:
                    break
                if is_last:
                    return clock + ends, clock + ends + waited, stops
                now, left = ends, left - saving.interval_seconds
            clock += life
        stops += 1
        waited += random.expovariate(1.0 / taking.wait_seconds) if taking.wait_seconds else 0.0
