"""The door of a link: what is refused at once, what is handed on, and the exit code of a rank that died."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fullstep.api import linked
from fullstep.api.linked import Linked
from fullstep.cli import main
from fullstep.errors import LabError
from fullstep.formats.probe_record import read_any
from fullstep.ledger.link import LinkSample, MeasuredLink

MEASURED = MeasuredLink(
    made="2026-01-01T00:00:00+00:00", device="cpu", backend="gloo", ranks=2, processors=2, iterations=2, warm_up=5,
    samples=(LinkSample("send", 4096, 2, (1e-3, 2e-3)),), seconds=1.0,
)  # fmt: skip


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--sizes", "4K"], '--sizes: "4K" does not say which K'),
        (["--max-bytes", "0B"], "--max-bytes: found 0B; allowed: more than 0"),
        (["--sizes", "4KiB", "--max-bytes", "1MiB"], "not allowed with argument"),
        (["--cpu", "two"], "invalid int value: 'two'"),
        (["--silent-seconds", "0"], "--silent-seconds: found 0"),
        (["job.toml"], "unrecognized arguments: job.toml"),
    ],
)
def test_what_is_refused(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["link", *words]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""


def test_all_faults_are_told_together(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["link", "--sizes", "4K,5", "--silent-seconds", "0"]) == 2
    assert "3 faults" in capsys.readouterr().err


def test_the_record_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """In text and beside JSON, whose record is the same; where it can be kept no longer the report stands nonetheless."""
    monkeypatch.setattr(linked, "link", lambda **_: Linked(MEASURED, (), "nothing is known"))
    assert main(["link", "--cpu", "2", "--evidence", str(tmp_path / "kept"), "--json"]) == 0
    captured = capsys.readouterr()
    (path,) = (tmp_path / "kept").iterdir()
    assert f"the record is {path}" in captured.err and json.loads(path.read_text()) == json.loads(captured.out)
    assert read_any(str(path)).link == MEASURED
    later = tmp_path / "later"

    def link(**_: Any) -> Linked:
        later.write_text("a file has taken its name")
        return Linked(MEASURED, (), "nothing is known")

    monkeypatch.setattr(linked, "link", link)
    assert main(["link", "--cpu", "2", "--evidence", str(later)]) == 0
    captured = capsys.readouterr()
    assert "2 ranks on 2 cores, gloo" in captured.out and "the storage says" in captured.err


def test_a_folder_that_cannot_be_written_is_told_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the node that writes the record; the others need no such folder."""
    monkeypatch.setattr(linked, "link", lambda **_: None)
    (tmp_path / "file").touch()
    words = ["link", "--cpu", "2", "--evidence", str(tmp_path / "file" / "kept")]
    assert main(words) == 2
    assert f'--evidence: "{tmp_path / "file" / "kept"}": {tmp_path / "file"} is no folder that can be written' in capsys.readouterr().err
    for name in ("nosuch://x", "x" * 300, " ", "a\0b"):
        assert main([*words[:-1], name]) == 2
    assert main([*words, "--nodes", "2", "--node-rank", "1", "--rendezvous", "10.0.0.1:4000"]) == 0


def test_what_is_handed_on_and_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[dict[str, Any]] = []

    def link(**options: Any) -> Linked:
        asked.append(options)
        return Linked(MEASURED, (), "nothing is known")

    monkeypatch.setattr(linked, "link", link)
    assert main(["link", "--cpu", "2", "--sizes", "4KiB,1MiB", "--iterations", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["samples"] == [{"collective": "send", "size_bytes": 4096, "seconds": [1e-3, 2e-3]}]
    assert main(["link"]) == 0
    assert "2 ranks on 2 cores, gloo" in capsys.readouterr().out
    first, second = asked
    assert (first["cpu"], first["sizes_bytes"], first["max_bytes"], first["iterations"]) == (2, [4096, 2**20], None, 2)
    assert (second["cpu"], second["sizes_bytes"], second["iterations"], second["silent_seconds"]) == (None, None, 20, 600.0)


def test_a_rank_that_died(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def link(**_: Any) -> Linked:
        raise LabError("rank 1 was killed")

    monkeypatch.setattr(linked, "link", link)
    assert main(["link", "--json"]) == 4
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "rank 1 was killed" in captured.err
