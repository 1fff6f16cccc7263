"""What is known once somebody asked to stop, and that all ranks agree."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from alone import Alone

from fullstep.resume import Checkpoints
from fullstep.resume.stopping import Notice, StopSignal

pytestmark = [pytest.mark.real_classes, pytest.mark.filterwarnings("ignore::UserWarning:torch")]


@pytest.mark.parametrize(("left", "took", "suffices"), [(30.0, 45.0, False), (120.0, 45.0, True), (30.0, 30.0, True), (30.0, None, None)])
def test_whether_the_time_suffices(left: float, took: float | None, suffices: bool | None) -> None:
    notice = Notice(left, took)
    assert notice.suffices is suffices
    assert ("it will not end in time" in str(notice)) == (suffices is False)
    assert str(notice).startswith(f"{left:.0f} s until the machine is taken away")
    assert ("notice_seconds = 30, state" in str(notice._replace(stated_seconds=30.0))) == (suffices is False)
    assert ("no save has been timed yet" in str(notice)) == (took is None)


def test_a_signal_is_remembered_until_somebody_asks() -> None:
    before = signal.getsignal(signal.SIGUSR1)
    stop = StopSignal((signal.SIGUSR1,), 30.0, None)
    assert not stop.agree() and not stop.agreed and stop.notice(1.0) is None
    os.kill(os.getpid(), signal.SIGUSR1)
    assert not stop.agreed  # nothing happens by itself
    notice = stop.notice(1.0)
    assert notice is not None and 0 < notice.seconds_left <= 30.0 and notice.save_seconds == 1.0 and notice.stated_seconds == 30.0
    assert stop.agree() and stop.agreed
    os.kill(os.getpid(), signal.SIGUSR1)
    again = stop.notice(1.0)
    assert again is not None and again.seconds_left <= notice.seconds_left  # the first one counts
    stop.close()
    assert signal.getsignal(signal.SIGUSR1) is before


def test_one_rank_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one. From here on this one counts its time, too."""
    asked: list[int] = []

    def reduce(told: Any, operation: Any, group: Any) -> None:
        asked.append(int(told.item()))
        told.fill_(1 if len(asked) > 1 else 0)

    monkeypatch.setattr(dist, "all_reduce", reduce)
    stop = StopSignal((), 30.0, "a group")  # type: ignore[arg-type]
    assert not stop.agree() and stop.notice(None) is None
    assert stop.agree() and stop.notice(None) is not None
    assert stop.agree() and asked == [0, 0]  # once agreed, nobody is asked again


def test_another_thread_catches_no_signals() -> None:
    """Python has that done by the main thread alone."""
    made: list[StopSignal] = []
    thread = threading.Thread(target=lambda: made.append(StopSignal((signal.SIGUSR1,), 30.0, None)))
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGUSR1) is not made[0]._catch
    made[0].ask()
    assert made[0].agree()


def test_a_checkpoints_own_times(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What the last save took is what the next one is expected to take."""
    training = Alone(tmp_path, notice_seconds=30.0)
    assert training.checkpoints.notice is None and not training.checkpoints.must_stop() and not training.checkpoints.stopping
    training.saved()
    training.checkpoints._save_seconds = 45.0
    training.checkpoints._stop.ask()
    assert training.checkpoints.must_stop() and training.checkpoints.stopping
    assert training.checkpoints.notice is not None and training.checkpoints.notice.suffices is False
    assert caplog.text.count("a save took 45.0 s: it will not end in time") == 1
    assert training.checkpoints.must_stop()
    assert caplog.text.count("asked to stop") == 1
    training.saved()
    assert training.checkpoints.notice.save_seconds is not None and training.checkpoints.notice.save_seconds < 30.0


def test_signals_are_given_back(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Checkpoints(tmp_path, model=Alone(tmp_path).model) as checkpoints:
        assert signal.getsignal(signal.SIGTERM) is not before
        os.kill(os.getpid(), signal.SIGTERM)
        deadline = time.monotonic() + 10.0
        while not checkpoints.must_stop():
            assert time.monotonic() < deadline
    assert signal.getsignal(signal.SIGTERM) is before
