"""Signals, closed pipes and terminals that cannot print: no traceback, the right code."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fullstep.cli.doorway import guarded
from fullstep.errors import Fault, InputError, LabError

FULLSTEP = Path(sys.executable).parent / "fullstep"


def raising(error: BaseException) -> int:
    def action() -> int:
        raise error

    return guarded(action)


def test_what_went_well_keeps_its_code() -> None:
    assert guarded(lambda: 3) == 3


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InputError(Fault("a", "b", "c")), 2),
        (LabError("a worker died"), 4),
        (KeyboardInterrupt(), 130),
        (RuntimeError("x"), 1),
        (SystemExit(7), 7),
        (SystemExit("x"), 1),
    ],
)
def test_codes(error: BaseException, code: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FULLSTEP_DEBUG", raising=False)
    assert raising(error) == code
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_stopped_by_a_signal(number: signal.Signals) -> None:
    command = [FULLSTEP, "estimate", "--jsonl"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        process.stdin.write("{}\n")
        process.stdin.flush()
        process.stdout.readline()  # it is up and waits for more
        process.send_signal(number)
        assert process.wait(30) == 128 + number
        assert process.stderr.read() == ""


def test_a_terminal_without_unicode() -> None:
    command = [FULLSTEP, "estimate", "--model", "meta-llama/Llama-3.1-8B", "--gpu", "H200-SXM"]
    done = subprocess.run(command, capture_output=True, check=False, env={"PYTHONIOENCODING": "ascii", "PATH": "/usr/bin"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii() and b"####" in done.stdout


def test_faults_on_a_terminal_without_unicode() -> None:
    done = subprocess.run(
        [FULLSTEP, "estimate", "--model", "Ω/ω"], capture_output=True, check=False, env={"PYTHONIOENCODING": "ascii", "PATH": "/usr/bin"}
    )
    assert done.returncode == 2
    assert b"Traceback" not in done.stderr
