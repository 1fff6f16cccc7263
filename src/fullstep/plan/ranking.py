"""Which option one would take first, by a stated order until step times are modelled.

1. the verdict: fits, tight, unknown;
2. fewer servers;
3. what leaves the GPU: nothing, activations, the optimizer, the parameters;
4. where the GPUs of a node are joined by NVLink: recomputation (none, selective, full) before traffic (a replica on each GPU,
   ZeRO-1, ZeRO-2, ... FSDP, ZeRO-3), because there the traffic hides behind computation and recomputation does not;
   where they are joined by PCIe: traffic before recomputation;
5. a larger micro-batch;
6. fewer changes against the worksheet as written.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter

from fullstep.plan.layouts import LAYOUTS
from fullstep.plan.savers import level_of
from fullstep.plan.trial import Trial, verdict_order

_FAST_LINKS = ("nvswitch", "nvlink_bridge")

Rank = tuple[int, ...]


def rank(trial: Trial) -> Rank:
    """The key to sort options by; smaller is better."""
    job = trial.job
    offload, recompute = level_of(job)
    traffic = LAYOUTS[job.layout.strategy].traffic
    hidden = job.machine.link in _FAST_LINKS
    speed = (recompute, traffic) if hidden else (traffic, recompute)
    changes = sum(value is not None for value in trial.changes.values())
    return (verdict_order(trial.verdict), job.machine.nodes, offload, *speed, -job.batch.micro_batch, changes)


def ranked(trials: Iterable[Trial]) -> list[Trial]:
    """Options best first, each once, without those that do not fit."""
    seen: dict[tuple[tuple[str, object], ...], Trial] = {}
    for trial in trials:
        if trial.verdict != "does_not_fit":
            seen.setdefault(tuple(sorted(trial.changes.items(), key=itemgetter(0))), trial)
    return sorted(seen.values(), key=rank)
