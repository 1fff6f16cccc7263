"""What data would sharpen the answer, and how to get it."""

from __future__ import annotations

from typing import NamedTuple

from fullstep.job import Job


class Missing(NamedTuple):
    """One thing that the worksheet leaves open."""

    key: str
    why: str
    how: str


def missing_data(job: Job) -> list[Missing]:
    """In the order in which they matter for the answer: memory first, then time."""
    found: list[Missing] = []
    machine = job.machine
    is_market = machine.card is None and machine.usable_bytes is None
    if machine.card is None and not is_market:
        found.append(Missing("machine.gpu", "the kernels of the card and its link are open", "name a card of the catalogue"))
    stated = job.worksheet.get("machine", {}).get("gpu_memory_gib")
    if machine.card is not None and stated is None and machine.card.reported_bytes is None:
        how = "nvidia-smi --query-gpu=memory.total --format=csv"
        found.append(Missing("machine.gpu_memory_gib", "nobody published what this card's driver reports", how))
    if machine.host_memory_bytes is None and not is_market:
        found.append(Missing("machine.host_memory_gib", "whether the host memory is enough for loading and offloading is open", "free -g"))
    if not job.measured:
        how = "run one full step and read torch.cuda.max_memory_allocated()"
        found.append(Missing("measured.allocated_peak_gib", "one measured step outranks every estimate", how))
    several = max(machine.nodes, job.goal.max_nodes or 1) > 1 and not is_market
    if several and machine.network_gbit_s is None:
        why = "how long a step takes on several servers is open"
        found.append(Missing("machine.network_gbit_s", why, "ask for the line rate per server"))
    elif several and machine.rdma is None:
        why = "sockets are taken as likely; with RDMA a network carries about twice as much"
        found.append(Missing("machine.rdma", why, "ask whether it is InfiniBand, RoCE or EFA; ibv_devinfo lists adapters"))
    if job.data.tokens is None and job.data.examples is None and job.data.steps is None:
        deadline = " and with it whether the deadline is kept" if job.goal.finish_within_hours is not None else ""
        found.append(Missing("data.tokens", f"the length of the run{deadline} is open", "count the tokens of the data set"))
    return found
