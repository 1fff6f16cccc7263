"""The sign of life: a line now and then in a log, one line over and over where somebody watches."""

from __future__ import annotations

import io
import time

import pytest

import fullstep.cli.progress
from fullstep.cli.progress import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_log_has_a_line_every_half_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    log = io.StringIO()
    monkeypatch.setattr("sys.stderr", log)
    monkeypatch.setattr(fullstep.cli.progress, "_LOG_SECONDS", 0.01)
    with progress("tracing") as say:
        say("forward\x1b[2J")
        deadline = time.monotonic() + 10
        while log.getvalue().count("\n") < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
    lines = log.getvalue().splitlines()
    assert len(lines) >= 2
    assert all(line.startswith("fullstep: tracing: forward") and line.endswith(" s") and "\x1b" not in line for line in lines)


def test_nobody_watches(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("tracing") as say:
        say("forward")
    assert capsys.readouterr().err == ""


def test_the_stage_is_shown_and_wiped(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(fullstep.cli.progress, "_PATIENCE_SECONDS", 0.01)
    monkeypatch.setenv("COLUMNS", "60")
    with progress("tracing") as say:
        deadline = time.monotonic() + 10
        while "tracing ... " not in terminal.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
        say("backward \x1b[2J" + "x" * 100)
        while "backward" not in terminal.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
    lines = terminal.getvalue().split("\r\x1b[K")
    assert any(line.startswith("tracing ... ") for line in lines)
    assert any(line.startswith("tracing: backward ") for line in lines)
    assert "\x1b[2J" not in terminal.getvalue()
    assert max(map(len, lines)) < 60 and lines[-1] == ""
