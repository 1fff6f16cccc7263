"""Trainings that know nothing of being watched, in processes of their own."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from fullstep.cli import main
from fullstep.formats.probe_record import probe_from_bytes
from fullstep.lab.probe.command.probe import NOT_KNOWN, WantedCommand, run_command_probe

pytestmark = pytest.mark.real_classes
_TRAINING = str(Path(__file__).with_name("training.py"))


def test_a_script_is_ended_after_enough_steps_and_its_memory_counted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["--steps", "4", "--count-memory", "--show-output", "--json", "--evidence", str(tmp_path)]
    assert main(["probe", *words, "--", sys.executable, _TRAINING, "100000", "accumulates"]) == 0
    out, errors = capsys.readouterr()
    record = json.loads(out)
    assert "the end of the program" not in errors  # it did not come so far
    assert (record["outcome"]["what"], record["worksheet"], record["notes"]) == ("completed", None, [NOT_KNOWN])
    assert record["environment"]["optimizers"] == ["AdamW"]
    (rank,) = record["ranks"]
    assert [row[0] for row in rank["steps"]["rows"]] == [3, 4]
    peaks = {(row[0], row[1], row[2]): row[3] for row in rank["memory"]["rows"]}
    weights = 4 * (64 * 64 + 64 + 64 + 1)
    inputs, outputs = 4 * 8 * 64, 4 * 8 * 64
    assert peaks[1, 1, "load_and_forward"] == pytest.approx(weights + inputs + outputs, rel=0.02)
    assert peaks[4, 2, "backward"] > peaks[4, 1, "backward"]  # gradients are there already
    assert min(peaks[4, 0, "optimizer_step"], peaks[2, 0, "optimizer_step"]) > 4 * weights  # weights, gradients, two moments
    saved = next(tmp_path.glob("*.json"))
    assert probe_from_bytes(saved.read_bytes(), saved.name).median_step_seconds == record["summary"]["step_seconds"]["median"]


def test_memory_that_runs_out_under_a_limit(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["sh", "-c", f"ulimit -d 3000000; exec {sys.executable} {_TRAINING} 6 grows"]
    assert main(["probe", "--", *command]) == 3
    out = capsys.readouterr().out
    assert "OUT OF MEMORY: rank 0 in forward of step 3." in out
    assert "256.00 MiB were asked for, the limit is 2.86 GiB." in out


def test_optimizers_that_follow_no_cycle_are_told_of() -> None:
    """Two steps of one optimizer, then one of it and another: of two that step together nothing is told."""
    critic, two = (run_command_probe(WantedCommand((sys.executable, _TRAINING, "7", how))) for how in ("critic", "two"))
    assert any("do not follow one another" in note for note in critic.notes)
    assert not any("do not follow one another" in note for note in two.notes)


def test_an_error_that_the_program_catches_ends_nothing() -> None:
    probe = run_command_probe(WantedCommand((sys.executable, _TRAINING, "6", "catches")))
    assert (probe.outcome, probe.out_of_memory) == ("completed", None)
