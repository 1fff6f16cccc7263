"""What everybody holds on a GPU, as its driver says, looked at again and again: what comes and goes within a stretch shows too."""

from __future__ import annotations

import threading

import torch

_EVERY_SECONDS = 0.02


class DeviceMemory:
    """A thread that looks at the driver's count until it is stopped. It takes about a hundredth of a core, in counted steps alone.

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
