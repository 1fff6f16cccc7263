"""The door of a drill: what is refused at once, and the exit code of each verdict."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fullstep.api import drilled
from fullstep.cli import main
from fullstep.errors import LabError
from fullstep.lab.drill import DrillFailedError

MODEL = ["drill", "--model", "gpt2"]


def run(monkeypatch: pytest.MonkeyPatch, error: Exception, *words: str) -> int:
    def drill(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(drilled, "drill", drill)
    return main([*MODEL, "--to", "somewhere", *words])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (MODEL, "--to: none is given; allowed: a folder or a URL. For example --to"),
        (["drill", "--to", "x"], "worksheet: none is given"),
        ([*MODEL, "--to", "x", "--mode", "later"], "invalid choice: 'later'"),
        ([*MODEL, "--to", "x", "--after", "ddp"], '--after: "ddp"'),
        ([*MODEL, "--to", "x", "--cpu", "two"], "invalid int value: 'two'"),
        ([*MODEL, "--to", "x", "--silent-seconds", "-1"], "--silent-seconds: found -1"),
    ],
)
def test_what_is_refused(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""


def test_a_checkpoint_that_is_lost_is_a_failed_drill(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    failed = DrillFailedError("resumed", "a file is missing")
    assert run(monkeypatch, failed) == 3
    assert capsys.readouterr().out == "  The drill FAILED: resumed: a file is missing.\n"
    assert run(monkeypatch, failed, "--json") == 3
    assert json.loads(capsys.readouterr().out)["verdict"] == "failed"


def test_a_rank_that_died_is_no_verdict(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, LabError("rank 1 was killed"), "--json") == 4
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "rank 1 was killed" in captured.err
