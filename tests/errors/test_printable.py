"""Nothing that comes from outside steers the terminal or starts a line of its own."""

from __future__ import annotations

import json
from pathlib import Path
from unicodedata import category

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullstep.cli import main
from fullstep.errors import Fault, printable
from fullstep.report.paper import Paper

EVIL = "\x1b[31mred\x07\r\n\u202eback\u2028\x9b8m"


@given(st.text() | st.text(alphabet=st.characters(categories=["Cc", "Cf", "Cs", "Zl", "Zp"])))
def test_no_control_is_left_and_what_can_be_seen_stays(text: str) -> None:
    shown = printable(text)
    assert not [letter for letter in shown if category(letter) in ("Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp")]
    shown.encode("utf-8")
    assert printable(shown) == shown
    if text.isascii() and text.isprintable():
        assert shown == text


def test_a_fault_is_one_line_whatever_is_in_it() -> None:
    text = str(Fault(EVIL, EVIL, EVIL, EVIL))
    assert text.isprintable()
    assert text.count(r"\x1b[31mred\x07\r\n\u202eback\u2028\x9b8m") == 4


@pytest.mark.parametrize("colours", [False, True])
def test_paper_shows_escapes_and_keeps_its_own_ink(colours: bool) -> None:
    paper = Paper(colours=colours)
    text = paper.finish([*paper.entry("at", EVIL), *paper.sentence(EVIL), paper.ink(EVIL, "red")])
    own = text.replace("\x1b[31m", "", 1).replace("\x1b[0m", "", 1) if colours else text
    assert "\x1b" not in own and "\u202e" not in own and "\x9b" not in own
    assert own.count(r"\x1b[31mred") == 3


def test_names_of_keys_files_commands_and_flags(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "b\x1b[31m\nad.json"
    bad.write_text(json.dumps({"mo\x1bdel": {}, "batch": {"k\u202e": 1}, "method": {"kind": "l\x1bra"}}), encoding="utf-8")
    twice = tmp_path / "twice.json"
    twice.write_text('{"model": {"a\\u001b": 1, "a\\u001b": 2}}', encoding="utf-8")
    others = [["pl\x1ban"], ["plan", "--fl\x1bag"], ["plan", "--set", "\x1b"]]
    for words in [["plan", str(bad)], ["plan", str(twice)], ["plan", "no\x1b[2J\nfile"], *others]:
        assert main(words) == 2
        message = capsys.readouterr().err
        assert r"\x1b" in message
        assert all(line.isprintable() for line in message.splitlines())


def test_names_in_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "m\x1b[31m\nodel"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "gpt2"}', encoding="utf-8")
    first = folder / "first.json"
    method = {"kind": "lora", "targets": ["c_attn", "\x1b[8mx"]}
    first.write_text(json.dumps({"model": {"config": "config.json"}, "method": method}), encoding="utf-8")
    for words in (["estimate", str(first)], ["estimate", str(first), str(first)], ["plan", str(first), "--gpu", "H100-SXM"]):
        assert main(words) == 0
        out = capsys.readouterr().out
        assert all(line.isprintable() for line in out.splitlines()) and r"\x1b[" in out
