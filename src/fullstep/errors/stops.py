"""A signal that ends the program lets its cleanups run: files are taken away, processes that it started are ended."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

BY_SIGNAL = 128
"""plus the number of the signal: the exit code that shells give to a program that a signal ended"""


@contextmanager
def ends_by_signal() -> Iterator[None]:
    """SIGTERM and SIGHUP raise SystemExit where nobody has said otherwise; only the main thread may say so."""

    def stop(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(BY_SIGNAL + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ending = {signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)}  # not every system has a hangup
    caught = [number for number in ending if signal.getsignal(number) is signal.SIG_DFL]
    for number in caught:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in caught:
            signal.signal(number, signal.SIG_DFL)
