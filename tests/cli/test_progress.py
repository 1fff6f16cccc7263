"""The sign of life: nothing where nobody watches, one line over and over where somebody does."""

from __future__ import annotations

import io
import time

import pytest

import fullstep.cli.progress
from fullstep.cli.progress import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


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
