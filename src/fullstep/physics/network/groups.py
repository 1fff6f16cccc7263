"""Which ranks share a unit, hold the same one, or cut one token's work among them, and on how many nodes they sit."""

from __future__ import annotations

from fullstep.job import Job
from fullstep.physics.network.collective import Group, spread


def tensor_group(job: Job) -> Group:
    """Ranks that cut every matrix among them: neighbours."""
    return spread(job.layout.tensor, 1, job.machine.gpus)


def context_group(job: Job) -> Group:
    """Ranks that cut every row of tokens among them."""
    return spread(job.layout.context, job.layout.tensor, job.machine.gpus)


def expert_group(job: Job) -> Group:
    """Ranks that divide the experts of a block: neighbours among data * context."""
    return spread(job.layout.expert, job.layout.tensor, job.machine.gpus)


def data_group(job: Job, *, experts: bool = False) -> Group:
    """Ranks that hold the same weights and saw other tokens: data-parallel * context; of experts 1 / expert of them."""
    layout = job.layout
    apart = layout.expert if experts else 1
    return spread(max(1, layout.data_parallel * layout.context // apart), layout.tensor * apart, job.machine.gpus)


def shard_group(job: Job, *, experts: bool = False) -> Group:
    """Ranks among which a unit is divided: shards * context; an expert's among 1 / expert of them.

    Source:
        torchtitan, distributed/parallel_dims.py: FSDP's mesh is data * context, that of experts the same without the expert degree
    """
    layout = job.layout
    apart = layout.expert if experts else 1
    return spread(max(1, layout.shards * layout.context // apart), layout.tensor * apart, job.machine.gpus)


def replica_group(job: Job) -> Group:
    """Ranks that hold the same shard."""
    layout = job.layout
    replicas = max(1, layout.data_parallel // max(1, layout.shards))
    return spread(replicas, layout.tensor * layout.context * layout.shards, job.machine.gpus)


def regather_group(job: Job, group: Group) -> Group | None:
    """Ranks from which backward gathers a unit again; None: it is still there.

    reshard_after_forward true: all its shards. An integer k: k neighbours, among which it stays divided after forward. False, and
    SHARD_GRAD_OP: it stayed whole.

    Source:
        torch.distributed.fsdp._fully_shard._fsdp_init, _get_post_forward_mesh_info
    """
    over = job.layout.reshard_after_forward
    if over is False or (over == 1 and not isinstance(over, bool)) or job.layout.strategy == "fsdp_grad_op":
        return None
    if over is True or over >= group.ranks:
        return group
    return spread(over, job.layout.tensor, job.machine.gpus)
