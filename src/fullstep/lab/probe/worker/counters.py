"""What an allocator gave out in each stretch of a step. Needs torch alone: a training that is watched loads this file by itself."""

from __future__ import annotations

import gc
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

_MARK = "fullstep stretch "
_TENSORS = "fullstep tensors "
_BETWEEN = ("inputs", "optimizer_step")
"""phases that begin where autograd holds nothing"""
_STAND_INS = (FakeTensor, FunctionalTensor)
"""tensors in place of values, while a model is compiled"""
_MEMORY = "[memory]"
"""name of the profiler's event for each allocation and release"""


class Stretch(NamedTuple):
    """A phase of a micro-batch or of the optimizer's step. Bytes on this rank's device; None: the device has no such counter."""

    step: int
    """of the optimizer, from 1 on; 0: before the first"""
    micro_batch: int
    """from 1 on; 0 outside of them"""
    phase: str
    allocated_peak_bytes: int
    allocated_end_bytes: int
    reserved_peak_bytes: int | None = None
    device_used_bytes: int | None = None
    """by all processes of the device, the most that its driver told of"""


class Counter(ABC):
    """Call :meth:`start` before the model is built, :meth:`mark` where a stretch begins, :meth:`finish` where counting ends."""

    at: tuple[int, str] = (0, "")
    """step and phase of the stretch that goes on, counted or not"""
    is_over = False
    """nothing is counted any more"""
    _found: Sequence[Stretch] = ()

    @property
    def ended(self) -> Sequence[Stretch]:
        """Those that are over and known already; a counter may know all of them at its end alone."""
        return ()

    @abstractmethod
    def start(self) -> None:
        """From here on everything counts."""

    def mark(self, step: int, micro_batch: int, phase: str) -> None:
        """Ends the stretch before and begins this one."""
        self.at = step, phase
        if not self.is_over:
            self._begin(step, micro_batch, phase)

    def take_model(self, model: nn.Module) -> None:  # noqa: B027 - most counters see all there is
        """From here on a counter may look at what is there, where it does not see all that goes.

        Args:
            model: as it is called
        """

    def finish(self) -> list[Stretch]:
        """All stretches in their order, the last one ended."""
        if not self.is_over:
            self.is_over = True
            self._found = self._end()
        return list(self._found)

    @abstractmethod
    def _begin(self, step: int, micro_batch: int, phase: str) -> None:
        """A stretch, where the one before ends."""

    @abstractmethod
    def _end(self) -> list[Stretch]:
        """All of them."""


class ProcessorCounter(Counter):
    """The events of torch's allocator of host memory (``[memory]`` of torch.profiler), added up.

    They tell of what this thread, and autograd on its behalf, asks for and releases: not of threads of gloo, which release what they have
    sent, nor of those that read weights, nor of what a library takes by itself. Between micro-batches what tensors hold counts instead.
    They tell of no release of what was there before they began. Sizes are as asked for, without rounding.
    """

    _model: nn.Module | None = None

    def __init__(self) -> None:
        self._profile: Any = profile(activities=[ProfilerActivity.CPU], profile_memory=True)

    def start(self) -> None:
        gc.collect()  # what was there before is released before
        self._profile.start()

    def take_model(self, model: nn.Module) -> None:
        self._model = model

    def _begin(self, step: int, micro_batch: int, phase: str) -> None:
        if self._model is not None and phase in _BETWEEN:
            with record_function(f"{_TENSORS}{live_bytes(self._model)}"):
                pass
        with record_function(f"{_MARK}{step} {micro_batch} {phase}"):
            pass

    def _end(self) -> list[Stretch]:
        self._begin(0, 0, "end")
        self._profile.stop()
        found = _added_up(self._profile.profiler.kineto_results.events())
        self._profile = None  # its events take room
        return found


def _added_up(events: Any) -> list[Stretch]:
    """Allocated bytes from mark to mark."""
    timed = [
        (event.start_ns(), event.name(), event.nbytes())
        for event in events
        if event.name() == _MEMORY or event.name().startswith((_MARK, _TENSORS))
    ]
    allocated = peak = 0
    under_way: tuple[int, int, str] | None = None
    found = []
    for _, name, size_bytes in sorted(timed, key=lambda event: event[0]):
        if name == _MEMORY:
            allocated += size_bytes
            peak = max(peak, allocated)
            continue
        if name.startswith(_TENSORS):
            allocated = int(name.removeprefix(_TENSORS))
            continue
        if under_way is not None:
            found.append(Stretch(*under_way, peak, allocated))
        step, micro_batch, phase = name.removeprefix(_MARK).split(" ")
        under_way, peak = (int(step), int(micro_batch), phase), allocated
    return found


def live_bytes(model: nn.Module) -> int:
    """In host memory: all tensors of this process that are still there, each storage once, and the buckets of DDP's reducer.

    Args:
        model: as it is called
    """
    gradients = [each.grad for each in model.parameters()]  # as objects of Python, which backward makes none of
    gc.collect()
    storages: dict[int, int] = {}
    for each in gc.get_objects():
        if issubclass(type(each), torch.Tensor) and _has_memory(each) and each.device.type == "cpu":
            storages[each.untyped_storage().data_ptr()] = each.untyped_storage().nbytes()
    del gradients
    return sum(storages.values()) + (_bucket_bytes(model) if isinstance(model, DistributedDataParallel) else 0)


def _has_memory(tensor: torch.Tensor) -> bool:
    """Of its own: those that are made of others (DTensor, quantized states) have none."""
    return not isinstance(tensor, _STAND_INS) and not is_traceable_wrapper_subclass(tensor)


def _bucket_bytes(model: DistributedDataParallel) -> int:
    """What C++ holds, and no object of Python."""
    about = model._get_ddp_logging_data()
    sizes = str(about.get("rebuilt_bucket_sizes") or about.get("bucket_sizes") or "")
    return sum(int(size) for size in sizes.split(",") if size.strip())
