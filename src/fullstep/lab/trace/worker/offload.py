"""What stays in host memory between its uses: activations, and the shards of FSDP2 with all that belongs to them.

The trace knows one device, so the recorder is told what is on the host. Copies are taken to be done when the next operation begins.

Sources: torch 2.13, autograd/graph.py (save_on_cpu), distributed/fsdp/_fully_shard (_fsdp_param.py all_gather_inputs, _fsdp_collectives.py
foreach_reduce); torchtune 0.6, training/_activation_offloading.py, and trl, models/activation_offloading.py: weights, small tensors and
what the head keeps stay.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fullstep.lab.trace.worker.recorder import Recorder
from fullstep.lab.trace.worker.stream import RELEASE, Stream

SMALLEST_BYTES = 1024
"""smaller tensors are not worth a copy. Source: torchtune, OffloadActivations, min_offload_size"""
_STAY = ("weights", "gathered_parameters", "buffers")


def host_peak_bytes(stream: Stream) -> int:
    """The most that was in host memory at once, of one rank, in bytes as asked for."""
    now = most = 0
    for which, size in zip(stream.which, stream.sizes, strict=True):
        record = stream.tensors[which]
        if record.holding == "host":
            now += -record.size_bytes if size == RELEASE else size
            most = max(most, now)
    return most


def activations_on_host(recorder: Recorder) -> contextlib.AbstractContextManager[None]:
    """Around forward: what blocks save for backward is copied to the host, and comes back for the operation that is undone.

    The tensor on the GPU goes as soon as nobody else holds it.
    """

    def pack(tensor: Tensor) -> tuple[Tensor, bool]:
        small = tensor.numel() * tensor.element_size() < SMALLEST_BYTES
        if small or recorder.places.here()[0].in_loss or recorder.holding_of(tensor) in _STAY:
            return tensor, False
        kept = torch.empty_like(tensor)
        recorder.keep_on_host([kept])
        return kept, True

    def unpack(packed: tuple[Tensor, bool]) -> Tensor:
        tensor, offloaded = packed
        return tensor.clone() if offloaded else tensor

    return torch.autograd.graph.saved_tensors_hooks(pack, unpack)


def offload_shards(recorder: Recorder) -> Any:
    """FSDP2's policy for parameters, gradients and states on the host. Call it before parameters are sharded."""
    from torch.distributed.fsdp import CPUOffloadPolicy  # noqa: PLC0415
    from torch.distributed.fsdp._fully_shard import _fsdp_param, _fsdp_param_group  # noqa: PLC0415

    kind: Any = _fsdp_param.FSDPParam
    of_class: Callable[[Any], list[Tensor]] = kind.all_gather_inputs.fget
    reduce = _fsdp_param_group.foreach_reduce

    def inputs(parameter: Any) -> list[Tensor]:
        """A copy on the GPU, then cast there. A shard that was left on the GPU after forward is not copied."""
        if parameter.sharded_state != _fsdp_param.ShardedState.SHARDED:
            return of_class(parameter)
        return [_fsdp_param._to_dtype_if_needed(parameter._sharded_param_data.clone(), parameter.param_dtype)]

    def reduced(parameters: Any, *rest: Any) -> Any:
        """The reduced gradient of each parameter is copied out of the buffer of its unit."""
        fresh = [parameter for parameter in parameters if parameter.sharded_param.grad is None]
        result = reduce(parameters, *rest)
        for parameter in fresh:
            if parameter.sharded_param.grad is not None:
                copy = parameter.sharded_param.grad._local_tensor.clone()
                recorder.keep_on_host([copy])
                parameter.sharded_param.grad = parameter.to_sharded_dtensor(copy)
        return result

    kind.all_gather_inputs = property(inputs)
    _fsdp_param_group.foreach_reduce = reduced
    return CPUOffloadPolicy()


def step_on_host(optimizer: torch.optim.Optimizer, recorder: Recorder) -> None:
    """The optimizer's step runs where its parameters are: nothing that it makes is on the GPU."""
    first = 0

    def before(*_: Any) -> None:
        nonlocal first
        first = len(recorder.stream.tensors)

    def after(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        for record in recorder.stream.tensors[first:]:
            record.holding = "host"
        recorder.keep_on_host(value for states in optimizer.state.values() for value in states.values() if isinstance(value, Tensor))

    optimizer.register_step_pre_hook(before)
    optimizer.register_step_post_hook(after)
