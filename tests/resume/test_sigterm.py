"""The machine is taken away: all ranks save the same step in time, or it is said that they cannot, and what was saved before comes back."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from alone import whole
from processes import Nursery, Torchrun, Training

pytestmark = pytest.mark.real_classes
ENDLESS = 10**6


def digests(training: Training | Torchrun) -> dict[int, str]:
    return {event["step"]: event["digest"] for event in training.events() if "digest" in event}


def goes_on(nursery: Nursery, folder: Path, step: int, digest: str, ranks: int = 2) -> None:
    again = nursery.start(folder, "--wrap", "ddp", "--steps", step, ranks=ranks)
    assert again.until(lambda event: "digest" in event) == {"step": step, "digest": digest}
    assert again.ended() == [0] * ranks, again.text()


@pytest.mark.parametrize(("mode", "notice"), [("sync", 30), ("thread", 120), ("process", 30)])
def test_saved_in_time(tmp_path: Path, nursery: Nursery, mode: str, notice: int) -> None:
    """One rank alone is told. The last save is published when it returns, in every mode: nobody will wait for it afterwards."""
    given = (tmp_path / "runs", "--mode", mode, "--wrap", "ddp", "--save-every", 3, "--steps", ENDLESS, "--pause", 0.01)
    training = nursery.start(*given, "--notice", notice)
    training.until(lambda event: event.get("step", 0) >= 7)  # the save of step 3 has ended: that of step 6 waited for it
    training.signal(signal.SIGTERM, ranks=[1])
    assert training.ended() == [0, 0], training.text()
    (stopped,) = [event for event in training.events() if "stopped" in event]
    assert stopped["suffices"] is True
    (last,) = [event for event in training.events() if event.get("step") == stopped["step"] and "staged" in event]
    assert last["published"] and whole(tmp_path / "runs")[0] == stopped["step"]
    assert f"asked to stop: {notice} s until the machine is taken away, and a save took " in training.text()
    assert "it will not end in time" not in training.text()
    goes_on(nursery, tmp_path / "runs", stopped["step"], digests(training)[stopped["step"]])


def test_it_is_said_that_the_time_does_not_suffice(tmp_path: Path, nursery: Nursery) -> None:
    """The save of this training takes longer than the notice; it is tried, and the machine is gone in the middle of it."""
    gate = tmp_path / "gate"
    gate.touch()
    given = (tmp_path / "runs", "--wrap", "ddp", "--save-every", 3, "--steps", ENDLESS, "--pause", 0.01, "--notice", 0.3)
    training = nursery.start(*given, faults={"slow_write": 0.002, "waits_for": str(gate)})
    training.until(lambda event: event.get("step") == 3 and "staged" in event)
    gate.unlink()  # from here on no save ends
    training.signal(signal.SIGTERM)
    saving = training.until(lambda event: event.get("saving") and event["step"] > 3)
    assert "asked to stop: 0 s until the machine is taken away, and a save took " in training.text()
    assert "it will not end in time" in training.text()
    data = tmp_path / "runs" / f"step-{saving['step']:08d}" / "__0_0.distcp"
    while not data.exists():
        assert not training.over(), training.text()
        time.sleep(0.005)
    training.kill_tree()
    training.ended()
    assert data.exists() and whole(tmp_path / "runs") == [3]
    goes_on(nursery, tmp_path / "runs", 3, digests(training)[3])
