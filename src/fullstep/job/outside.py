"""What a process holds on its GPU beside torch's allocator."""

from __future__ import annotations

from fullstep.hardware import device_overheads
from fullstep.job.job import Settings
from fullstep.quantities import Bounds


def outside_allocator(job: Settings) -> Bounds:
    """The CUDA context, and a communicator where several GPUs work together [bytes].

    Source:
        ``device_overheads.csv`` of the hardware catalogue, where every figure has its evidence
    """
    overheads, machine = device_overheads(job.machine.card), job.machine
    if machine.gpus * machine.nodes == 1 or job.layout.strategy in ("single", "layer_split"):
        return overheads.context_bytes
    communicator = overheads.communicator_bytes if machine.nodes == 1 else overheads.communicator_between_nodes_bytes
    return overheads.context_bytes + communicator
