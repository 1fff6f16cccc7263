"""Launchers that are told to stop: `make test-slow`."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from alone import whole
from processes import Nursery, Torchrun
from test_sigterm import ENDLESS, digests, goes_on

pytestmark = pytest.mark.real_classes


def test_torchrun_waits_as_long_as_it_is_told(tmp_path: Path, nursery: Nursery) -> None:
    """The launcher alone is told. It passes the signal on, and kills the ranks some seconds later: 30, or --shutdown-timeout."""
    gate = tmp_path / "gate"
    given = ("--wrap", "ddp", "--save-every", 3, "--steps", ENDLESS, "--pause", 0.01, "--notice", 120)
    hasty, patient = tmp_path / "hasty", tmp_path / "patient"
    faults = {"waits_for": str(gate)}
    gate.touch()
    with (
        Torchrun(hasty, hasty / "runs", *given, ranks=1, faults=faults, options=("--shutdown-timeout", "1")) as killed,
        Torchrun(patient, patient / "runs", *given, ranks=1, faults=faults, options=("--shutdown-timeout", "115")) as saved,
    ):
        for training in (killed, saved):
            training.until(lambda event: event.get("step") == 6 and "staged" in event)
        gate.unlink()  # from here on no save ends
        for training in (killed, saved):
            training.signal(signal.SIGTERM)
            training.until(lambda event: event.get("saving") and event["step"] > 6)
        assert killed.ended() != 0
        gate.touch()
        saved.ended()
    assert "stopped" not in killed.text()
    newest = whole(hasty / "runs")[0]
    goes_on(nursery, hasty / "runs", newest, digests(killed)[newest], ranks=1)
    (stopped,) = [event for event in saved.events() if "stopped" in event]
    assert stopped["suffices"] is True and whole(patient / "runs")[0] == stopped["step"]
    goes_on(nursery, patient / "runs", stopped["step"], digests(saved)[stopped["step"]], ranks=1)
