"""Which option one would take first, by a stated order until step times are modelled.

1. the verdict: fits, tight, unknown;
2. the optimizer (and the parameters) on the GPU before in host memory: servers that the worksheet offers anyway
   (``machine.nodes``) are taken before every step waits for host memory;
3. fewer servers;
4. what leaves the GPU: nothing, activations, the optimizer, the parameters;
5. where the GPUs of a node are joined by NVLink: recomputation (none, selective, full) before traffic (a replica on each GPU,
   ZeRO-1, ZeRO-2, ... FSDP, ZeRO-3), because there the traffic hides behind computation and recomputation does not;
   where they are joined by PCIe: traffic before recomputation;
6. a larger micro-batch;
7. fewer changes against the worksheet as written.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter

from fullstep.job import Job
from fullstep.plan.layouts import LAYOUTS
from fullstep.plan.savers import OFFLOADS_OPTIMIZER, level_of
from fullstep.plan.trial import Trial, verdict_order

_FAST_LINKS = ("nvswitch", "nvlink_bridge")

Rank = tuple[int, ...]


def rule(fast_link: bool) -> str:
    """The order in one line, for people.

    >>> rule(fast_link=True)
    'fit, nothing offloaded, fewer servers, less recomputation, less traffic, more rows at once'
    """
    speed = "less recomputation, less traffic" if fast_link else "less traffic, less recomputation"
    return f"fit, nothing offloaded, fewer servers, {speed}, more rows at once"


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
    return sorted(seen.values(), key=rank)
