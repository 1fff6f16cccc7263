"""What a GPU's allocator gave out in each stretch, and what everybody holds on the device, as its driver says."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import torch

from fullstep.lab.probe.worker.counters import Counter, Stretch

_EVERY_SECONDS = 0.02


class DeviceMemory:
    """A thread that looks at the driver's count again and again until it is stopped: what comes and goes within a stretch shows too.

    It takes about a hundredth of a core, in counted steps alone.

    Args:
        device: of this rank
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._lock, self._stop = device, threading.Lock(), threading.Event()
        self._most = 0
        self._thread = threading.Thread(target=self._look_again_and_again, daemon=True)

    def start(self) -> None:
        """Begins to look."""
        self._thread.start()

    def stop(self) -> None:
        """The last look was taken; calls after the first do nothing."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def most_used_bytes(self) -> int:
        """The most that was seen since this was last asked, now included."""
        self._look()
        with self._lock:
            most, self._most = self._most, 0
        return most

    def _look(self) -> None:
        free, total = torch.cuda.mem_get_info(self._device)
        with self._lock:
            self._most = max(self._most, total - free)

    def _look_again_and_again(self) -> None:
        while not self._stop.wait(_EVERY_SECONDS):
            self._look()


class CudaCounter(Counter):
    """The caching allocator's own statistics, kept when memory is asked for, so that nothing has to wait for the GPU; and the driver's.

    Args:
        device: of this rank
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._used = device, DeviceMemory(device)
        self._ended: list[Stretch] = []
        self._under_way: tuple[int, int, str] | None = None

    @property
    def ended(self) -> Sequence[Stretch]:
        return self._ended

    def start(self) -> None:
        torch.cuda.reset_peak_memory_stats(self._device)
        self._used.start()

    def _begin(self, step: int, micro_batch: int, phase: str) -> None:
        self._close()
        self._under_way = step, micro_batch, phase

    def _end(self) -> list[Stretch]:
        self._close()
        self._used.stop()
        return self._ended

    def _close(self) -> None:
        """The stretch that goes on."""
        used = self._used.most_used_bytes()
        if self._under_way is not None:
            allocated = torch.cuda.max_memory_allocated(self._device), torch.cuda.memory_allocated(self._device)
            self._ended.append(Stretch(*self._under_way, *allocated, torch.cuda.max_memory_reserved(self._device), used))
        torch.cuda.reset_peak_memory_stats(self._device)
