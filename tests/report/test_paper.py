"""What a stream can show, and text that fits it."""

from __future__ import annotations

import io
from typing import Any

import pytest

from fullstep.report.paper import Paper


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def file(encoding: str) -> Any:
    return io.TextIOWrapper(io.BytesIO(), encoding=encoding)


def test_a_file_has_no_colours_and_a_terminal_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert not Paper.of(file("utf-8")).colours
    assert Paper.of(Terminal()).colours


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colours_can_be_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    paper = Paper.of(Terminal())
    assert not paper.colours
    assert paper.ink("word", "bold") == "word"


@pytest.mark.parametrize(("encoding", "bars"), [("utf-8", True), ("ascii", False), ("latin-1", False), ("cp1252", False)])
def test_bars_where_the_stream_can_print_them(encoding: str, bars: bool) -> None:
    stream = file(encoding)
    paper = Paper.of(stream)
    assert paper.unicode is bars
    stream.write(paper.finish(["· " + paper.bar(0.5) + " – Ω…"]))
    stream.flush()
    assert stream.buffer.getvalue().startswith("· █████".encode() if bars else b"| ##### - ?...")


def test_texts_wrap_beside_their_label() -> None:
    lines = Paper(width=80).entry("Assumed", "word " * 40)
    assert len(lines) == 4
    assert all(len(line) <= 80 for line in lines)
    assert lines[0].startswith("  Assumed        word") and lines[1].startswith(" " * 17 + "word")


def test_a_word_longer_than_the_line_is_cut_not_lost() -> None:
    lines = Paper(width=80).entry("at", "x" * 150)
    assert "".join(line.removeprefix("  at").strip() for line in lines) == "x" * 150


@pytest.mark.parametrize(("columns", "width"), [("90", 90), ("40", 80), ("500", 140), ("wide", 100), ("0", 100)])
def test_columns_hold_where_the_output_is_piped(columns: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert Paper.of(file("utf-8")).width == width
