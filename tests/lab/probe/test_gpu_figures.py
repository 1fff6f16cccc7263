"""What a rank takes from a GPU: how figures are put together, by an allocator, a driver and a profiler that are played."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.autograd import DeviceType

from fullstep.lab.probe.worker import overlap
from fullstep.lab.probe.worker.counters import Stretch
from fullstep.lab.probe.worker.gpu import CudaCounter, DeviceMemory
from fullstep.lab.probe.worker.limits import limit_memory
from fullstep.lab.probe.worker.overlap import profiled_steps

DEVICE = torch.device("cuda", 0)
WHOLE = 1000


class _Gpu:
    """An allocator that keeps what it has reserved, beside 100 bytes of others."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.allocated = self.peak = self.reserved = self.reserved_peak = 0
        self.fraction, self.looks = 1.0, 0
        for name, play in {
            "reset_peak_memory_stats": self._reset,
            "memory_allocated": lambda _: self.allocated,
            "max_memory_allocated": lambda _: self.peak,
            "max_memory_reserved": lambda _: self.reserved_peak,
            "mem_get_info": self._look,
            "get_device_properties": lambda _: SimpleNamespace(total_memory=WHOLE),
            "set_per_process_memory_fraction": self._limit,
            "synchronize": lambda *_: None,
        }.items():
            monkeypatch.setattr(torch.cuda, name, play)

    def ask(self, size: int) -> None:
        self.allocated += size
        self.peak = max(self.peak, self.allocated)
        self.reserved = max(self.reserved, self.allocated)
        self.reserved_peak = max(self.reserved_peak, self.reserved)

    def _reset(self, _: torch.device) -> None:
        self.peak, self.reserved_peak = self.allocated, self.reserved

    def _look(self, _: torch.device) -> tuple[int, int]:
        self.looks += 1
        return WHOLE - self.reserved - 100, WHOLE

    def _limit(self, fraction: float, _: torch.device) -> None:
        self.fraction = fraction


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> _Gpu:
    return _Gpu(monkeypatch)


def test_each_stretch_has_peaks_of_its_own(gpu: _Gpu) -> None:
    threads, counter = threading.active_count(), CudaCounter(DEVICE)
    gpu.ask(500)  # before: of no stretch
    gpu.ask(-450)
    counter.start()
    counter.mark(1, 1, "forward")
    gpu.ask(200)
    gpu.ask(-120)
    counter.mark(1, 1, "backward")
    gpu.ask(20)
    gpu.ask(-100)
    assert counter.finish() == [
        Stretch(1, 1, "forward", 250, 130, 500, 600),
        Stretch(1, 1, "backward", 150, 50, 500, 600),
    ]
    assert threading.active_count() == threads  # whoever looked at the driver's count has ended
    gpu.ask(900)
    counter.mark(2, 1, "forward")
    assert len(counter.finish()) == 2  # what comes later does not count


def test_what_comes_and_goes_on_the_device_within_a_stretch_is_seen(gpu: _Gpu) -> None:
    used = DeviceMemory(DEVICE)
    used.start()
    gpu.reserved, before = 700, gpu.looks
    until = time.monotonic() + 30
    while gpu.looks < before + 2 and time.monotonic() < until:  # a look that began after it came has ended
        time.sleep(0.005)
    gpu.reserved = 0
    used.stop()
    assert used.most_used_bytes() == 800
    assert used.most_used_bytes() == 100


@pytest.mark.parametrize(("limit", "fraction"), [(250, 0.25), (WHOLE, 1.0), (10 * WHOLE, 1.0)])
def test_a_limit_is_a_share_of_the_whole_device(gpu: _Gpu, limit: int, fraction: float) -> None:
    limit_memory(DEVICE, limit)
    assert gpu.fraction == fraction


def test_kernels_of_the_gpu_count_and_hidden_communication_does_not(gpu: _Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Microseconds: compute from 0 to 40, NCCL from 30 to 60 and 80 to 90, alone for 30 of them. What the host does is left out."""
    kernels = [
        ("aten::mm", 0, 500, DeviceType.CPU), ("gemm", 0, 40, DeviceType.CUDA),
        ("ncclDevKernel_AllGather_RING_LL", 30, 60, DeviceType.CUDA),
        ("ncclDevKernel_ReduceScatter_Sum_bf16", 80, 90, DeviceType.CUDA), ("cudaLaunchKernel", 0, 5, DeviceType.CPU),
    ]  # fmt: skip
    events = [SimpleNamespace(name=n, device_type=d, time_range=SimpleNamespace(start=b, end=e)) for n, b, e, d in kernels]

    @contextmanager
    def profile(**_: Any) -> Iterator[Any]:
        yield SimpleNamespace(events=lambda: events)

    made: list[int] = []
    monkeypatch.setattr(overlap, "profile", profile)
    first, second = profiled_steps(lambda: made.append(1), 2)
    assert len(made) == 2
    for each in (first, second):
        assert (each.compute_seconds, each.communication_seconds, each.exposed_seconds) == pytest.approx((40e-6, 40e-6, 30e-6))
        assert each.step_seconds > 0
